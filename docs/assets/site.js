// The theme makes these after a page has loaded: wide tables that scroll get a tab stop, and the buttons of each block
// of code a name of their own, because landmarks without one lead nowhere.
const mend = () => {
  for (const wrapped of document.querySelectorAll(".md-typeset__scrollwrap")) wrapped.tabIndex = 0
  document.querySelectorAll(".md-code__nav").forEach((buttons, i) => buttons.setAttribute("aria-label", `Code ${i + 1}`))
}
new MutationObserver(mend).observe(document.body, {childList: true, subtree: true})
mend()
