"""How closely leave-one-out answers: everybody, only who could hold the largest value, or a mere ranking.

The mode is the operator's, like a budget: it is no key of a policy, and no mode makes an approval easier. ``max`` gives
the same largest value for less; ``screen`` can block but never approve.
"""

from privgate import families
from privgate.evidence import ModeUsed, Request
from privgate.families.screen import MODELS, SHARE
from privgate.run.run import Bench, Mode

AGAIN = "check with --mode all"
HALF = "where networks are trained together, their differences are multiplied in bfloat16 (--precision mixed)"
#: what a request needs of everybody, by its aggregate
_EVERYBODY = {"quantile": "a quantile", "share_above": "a share of people"}


def used(bench: Bench) -> Mode:
    """Return the mode of this run: ``max`` only where an engine that covers the subject has a cheaper way to it.

    Who cannot hold the largest change of exact probabilities may hold the largest change of what is released instead,
    so everybody is measured there.
    """
    wanted = bench.limits.mode
    if wanted != "max":
        return wanted
    if not bench.subject.release.exact:
        return "all"
    return "max" if "max" in families.first(bench.subject)[0].modes else "all"


def told(bench: Bench) -> ModeUsed:
    """Return the mode for the evidence."""
    said = [note(bench)] if note(bench) else []
    if bench.limits.precision == "mixed":
        said.append(HALF)
    return ModeUsed(
        asked=bench.limits.mode, used=bench.once(used), precision=bench.limits.precision, note="; ".join(said)
    )


def note(bench: Bench) -> str:
    """Return what the mode means for this subject, in one sentence; empty where everybody is measured as usual."""
    if bench.once(used) == "screen":
        return (
            f"mode screen: where only retraining is left, {MODELS} shadow models rank everybody and the top "
            f"{SHARE:.0%} are retrained; it can block, and end inconclusive at best"
        )
    if bench.once(used) == "max":
        less_sharp = "; dtp's theorems are less sharp for those" if "dtp" in bench.asked else ""
        return (
            "mode max: only people who could hold the largest PDTP are measured closely, the others only bounded"
            + less_sharp
        )
    if bench.limits.mode == "max" and not bench.subject.release.exact:
        return (
            "mode max is about exact probabilities, and something else is released: whose release changes most can be "
            "anybody, so everybody is measured"
        )
    if bench.limits.mode == "max":
        return "mode max saves nothing here: no engine has a cheaper way to the largest value, everybody is measured"
    return ""


def refusal(bench: Bench, request: Request) -> str:
    """Return why this run cannot answer a request; empty if it can."""
    if request.metric not in ("dtp", "pdtp", "table") or bench.once(used) == "all":
        return ""
    if request.metric == "table":
        what = "a suite over the per-unit table"
    elif bench.once(used) == "max":
        what = _EVERYBODY.get(str(request.option("aggregate", "max")), "")
    else:  # who was only ranked has an interval without an end: whatever is aggregated stays open
        what = ""
    return (
        f"{what} needs everybody's own value, which mode {bench.once(used)} does not measure; {AGAIN}" if what else ""
    )


def never(bench: Bench) -> list[str]:
    """Return what the mode rules out for a whole policy, said before anything is trained."""
    return [f"{note(bench)}; {AGAIN} for an approval"] if bench.once(used) == "screen" else []
