"""Where training draws, a change above a limit at the released seed may be the seed's own noise: other seeds tell."""

import numpy as np

from privgate.arrays import Float, Index
from privgate.controls.seeds import PAIRED, draw_others, plan_other
from privgate.influence import per_person
from privgate.run import beside
from privgate.run.run import Run
from privgate.theorems.retrained import REFIT, Retrained

#: people above a limit who are refitted at other seeds
MOST_PAIRED = 30


def known_limits(run: Run) -> dict[int, float]:
    """Return the lower limits of people that one run knows, in the answers' unit; filled as they are refitted."""
    del run
    return {}


def confirm_at_other_seeds(run: Run, people: Index, low: Float, scale: float = 1.0) -> Float:
    """Return the lower limits of people that stand where training depends on its seed, shape (U,); larger is worse.

    A person above no limit keeps the value. Those above one, riskiest first and at most ``MOST_PAIRED``, are refitted
    at five other seeds, each with and without them: their limit is Student's of the mean change, corrected for all of
    them. A person whom these seeds do not show may be without influence: 0. ``scale`` is the unit of ``low`` in the
    answers' own. Section 9.4 of docs/mathematics.md.
    """
    if not run.at_seed or not run.people:
        return low
    least, known = min(limit for limit, _ in run.people), run.once(known_limits)
    worst = [int(k) for k in np.argsort(-low, kind="stable") if low[k] > least]
    if min(share for _, share in run.people) * len(people) < MOST_PAIRED:  # else so few people break no rule
        missing = [p for p in (int(people[k]) for k in worst[:MOST_PAIRED]) if p not in known]
        missing = missing[: max(0, MOST_PAIRED - len(known))]
        if missing:
            known.update(zip(missing, _pair(run, np.array(missing, dtype=np.int64)).tolist(), strict=True))
    out = np.array(low, dtype=np.float64)
    out[worst] = [known.get(int(people[k]), 0.0) / scale for k in worst]
    return out


def _pair(run: Run, people: Index) -> Float:
    """Return the lower limit of each person's change over other seeds, shape (U,), in the answers' own unit."""
    near, members = run.once(beside.of_people), run.subject.data.units
    row_unit, row_query = near.of_units(people)
    by = "seed" if run.seed_control is None else run.seed_control.coins
    drawn = draw_others(run.subject, PAIRED, fleet=run.fleet)
    rows = [row_query[row_unit == u] for u in range(len(people))]
    fits = [plan_other(near.asked, s, by=by, rows=row_query) for s in drawn]
    fits += [
        plan_other(near.asked, s, by=by, rows=rows[u], left_out=members[int(person)])
        for s in drawn
        for u, person in enumerate(people)
    ]
    answers = run.fleet.fits(near.asked, fits, label="refitting at other seeds")
    whole, less = answers[: len(drawn)], np.array(answers[len(drawn) :], dtype=object).reshape(len(drawn), len(people))
    if any(a.problem for a in whole):
        return np.zeros(len(people))  # other seeds show nothing
    # a person without whom no seed can train has no model without them; one who fails at some seeds shows nothing
    lost = np.array([[bool(a.problem) for a in row] for row in less])
    with_ = np.stack([a.log_p for a in whole])
    without = np.stack(
        [
            np.concatenate([with_[s][row_unit == u] if a.problem else a.log_p for u, a in enumerate(row)])
            for s, row in enumerate(less)
        ]
    )
    status = {int(u): "no model without this person" for u in np.flatnonzero(lost.all(axis=0))}
    paired = Retrained.of(REFIT, people, tuple(drawn), (row_unit, row_query), with_, without, undefined=status)
    if run.subject.task == "regression":
        lower = per_person.measure_moves(run.subject, paired).low
    else:
        lower = per_person.measure_influence(paired, run.subject.release, people=MOST_PAIRED)["pdtp_low"]
    return np.where(lost.all(axis=0), np.inf, np.where(lost.any(axis=0), 0.0, lower))


def describe_seeds(run: Run) -> dict[str, bool]:
    """Return for evidence that a number is about the released seed, and what other seeds say of people above limits."""
    if not run.at_seed:
        return {}
    lower, least = run.once(known_limits), min((limit for limit, _ in run.people), default=np.inf)
    return {"own_coins": True, "followed": bool(lower), "shown": any(v > least for v in lower.values())}
