"""How closely leave-one-out answers: everybody, only who could hold the largest value, or a mere ranking.

The mode is the operator's, like a budget: it is no key of a policy, and no mode makes an approval easier. ``max`` gives
the same largest value for less; ``screen`` can block but never approve.
"""

from privgate import families
from privgate.evidence import ModeUsed, Request
from privgate.families.screen import MODELS, SHARE
from privgate.run.needs import Need
from privgate.run.run import Mode, Run

AGAIN = "check with --mode all"
#: what a request needs of everybody, by its aggregate
_EVERYBODY = {"quantile": "a quantile", "share_above": "a share of people"}


def used(run: Run) -> Mode:
    """Return the mode of this run: ``max`` only where an engine that covers the subject has a cheaper way to it.

    Who cannot hold the largest change of exact probabilities may hold the largest change of what is released instead,
    so everybody is measured there.
    """
    wanted = run.limits.mode
    if run.subject.task == "regression":
        return "all"  # no ranking and no shortcut speaks about numbers
    if wanted != "max":
        return wanted
    if not run.subject.release.exact:
        return "all"
    return "max" if "max" in families.first(run.subject)[0].modes else "all"


def told(run: Run) -> ModeUsed:
    """Return the mode for the evidence."""
    said = [note(run)] if note(run) else []
    return ModeUsed(asked=run.limits.mode, used=run.once(used), note="; ".join(said))


def note(run: Run) -> str:
    """Return what the mode means for this subject, in one sentence; empty where everybody is measured as usual."""
    if run.once(used) == "screen":
        return (
            f"mode screen: where only retraining is left, {MODELS} shadow models rank everybody and the top "
            f"{SHARE:.0%} are retrained; it can block, and end inconclusive at best"
        )
    if run.once(used) == "max":
        less_sharp = "; dtp's theorems are less sharp for those" if Need.EVERY_QUERY in run.asked else ""
        return (
            "mode max: only people who could hold the largest PDTP are measured closely, the others only bounded"
            + less_sharp
        )
    if run.limits.mode == "max" and not run.subject.release.exact:
        return (
            "mode max is about exact probabilities, and something else is released: whose release changes most can be "
            "anybody, so everybody is measured"
        )
    if run.limits.mode == "max":
        return "mode max saves nothing here: no engine has a cheaper way to the largest value, everybody is measured"
    return ""


def refusal(run: Run, request: Request, needs: frozenset[Need]) -> str:
    """Return why this run cannot answer a request that needs these things; empty if it can."""
    if Need.LEAVE_ONE_OUT not in needs or run.once(used) == "all":
        return ""
    if Need.EVERYBODY in needs:
        what = "a suite over the per-unit table"
    elif run.once(used) == "max":
        what = _EVERYBODY.get(str(request.option("aggregate", "max")), "")
    else:  # who was only ranked has an interval without an end: whatever is aggregated stays open
        what = ""
    return f"{what} needs everybody's own value, which mode {run.once(used)} does not measure; {AGAIN}" if what else ""


def never(run: Run) -> list[str]:
    """Return what the mode rules out for a whole policy, said before anything is trained."""
    return [f"{note(run)}; {AGAIN} for an approval"] if run.once(used) == "screen" else []
