"""Who was approved or blocked rightly: models refitted here by hand, without anything of the gate's engines."""

import warnings
from typing import Any

import numpy as np
import pandas as pd

from privgate import Subject

PEOPLE = 12
#: where training depends on its seed: people, and seeds of the referee's own
FEW, SEEDS = 3, 12


def disagreement(
    subject: Subject, records: pd.DataFrame, *, approved: bool, limit: float | None, beside: bool = False
) -> str:
    """Return why independent refits contradict a verdict on PDTP; empty where they do not.

    The people whom the report calls the riskiest are left out of training, one after another, and some others drawn at
    random; the change of any label's probability at their own features is compared with what the report says of them,
    and with the limit. An approval is contradicted by one person above it, a block by nobody being above it among the
    riskiest; without a limit for everybody (a rule on a share of people) the single figures must agree. Where the gate
    asked ``beside`` the records, too, what is found at the records alone may be less than what it says.
    """
    data, recipe = subject.data, subject.recipe
    place = {str(name): u for u, name in enumerate(data.person_names)}  # a run that stopped early has few rows
    riskiest = records.sort_values("pdtp_low", ascending=False, kind="stable")["unit"].astype(str)[:PEOPLE]
    others = np.random.default_rng(5).choice(len(place), min(PEOPLE, len(place)), replace=False)
    chosen = list(dict.fromkeys([*(place[name] for name in riskiest), *others.tolist()]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = recipe.train(data.X, data.y, seed=recipe.seed)
        found = [_change(subject, whole, int(u)) for u in chosen]
    if why := _otherwise(dict(zip((str(data.person_names[u]) for u in chosen), found, strict=True)), records, beside):
        return why
    if limit is None:
        return ""
    above = [v for v in found if v > limit + 1e-6]
    if approved and above:
        return (
            f"approved, but {len(above)} of {len(found)} people refitted are above {limit:g}, by up to {max(above):.3g}"
        )
    if not approved and not above:
        return f"blocked, but none of {len(found)} people refitted is above {limit:g}: at most {max(found):.3g}"
    return ""


def unseen_seeds(subject: Subject, records: pd.DataFrame, *, above: float) -> str | None:
    """Return why a block of a model whose training draws from its seed is contradicted on other seeds.

    The mean change of any label's log-probability at a person's own records, with and without this person, over seeds
    that the gate has not used; of the riskiest people. Empty if one of them is above, None where noise leaves it open.
    """
    data, place = subject.data, {str(name): u for u, name in enumerate(subject.data.person_names)}
    riskiest = records.sort_values("pdtp_low", ascending=False, kind="stable")["unit"].astype(str)[:FEW]
    seeds = [int(s) for s in np.random.default_rng(77).choice(2**31, SEEDS, replace=False)]
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = [subject.recipe.train(data.X, data.y, seed=s) for s in seeds]
        for name in riskiest:
            moved = np.stack([_moved(subject, m, place[name], s) for m, s in zip(whole, seeds, strict=True)])
            with np.errstate(invalid="ignore"):
                mean, error = moved.mean(axis=0), moved.std(axis=0, ddof=1) / np.sqrt(SEEDS)
            # an answer that is impossible on some seeds only has no finite mean
            infinite = np.isinf(moved).any(axis=0)
            low, high = (np.where(infinite, np.inf, np.abs(mean) + d * error) for d in (-3, 3))
            found.append((float(low.max()), float(high.max())))
    if any(low > above for low, _ in found):
        return ""
    if all(high < above for _, high in found):
        return f"blocked, but {len(found)} people refitted on other seeds are at most at {max(h for _, h in found):.3g}"
    return None


def _otherwise(found: dict[str, float], records: pd.DataFrame, beside: bool) -> str:
    """Return how many people's changes lie outside of the intervals that the report gives them; empty if none."""
    told = records.assign(unit=records["unit"].astype(str)).set_index("unit")
    pairs = {u: (told["pdtp_low"].get(u, np.nan), told["pdtp_high"].get(u, np.nan)) for u in found}
    wrong = [u for u, (low, high) in pairs.items() if (found[u] < low - 1e-6 and not beside) or found[u] > high + 1e-6]
    if not wrong:
        return ""
    u = wrong[0]
    return f"{len(wrong)} of {len(found)} people refitted: {found[u]:.4g}, told {pairs[u][0]:.4g} to {pairs[u][1]:.4g}"


def _change(subject: Subject, whole: Any, unit: int) -> float:
    return float(np.abs(_moved(subject, whole, unit, subject.recipe.seed)).max())


def _moved(subject: Subject, whole: Any, unit: int, seed: int | None) -> Any:
    """Return how log-probabilities at a person's own records change without this person, one a record and label."""
    data, recipe = subject.data, subject.recipe
    rows = data.units[unit]
    kept = np.setdiff1d(np.arange(data.n), rows)
    pick = (lambda r: data.X.iloc[r]) if isinstance(data.X, pd.DataFrame) else (lambda r: data.X[r])
    other = recipe.train(pick(kept), data.y[kept], seed=seed)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p = [_log_probabilities(subject, m, pick(rows)) for m in (whole, other)]
        moved = log_p[0] - log_p[1]
    return np.where(np.isneginf(log_p[0]) & np.isneginf(log_p[1]), 0.0, moved)


def _log_probabilities(subject: Subject, model: Any, X: Any) -> Any:
    """Return log-probabilities, from the model itself where it has them: those of naive Bayes round to 0."""
    own = getattr(model, "predict_log_proba", None) if subject.recipe.predict is None else None
    if own is not None and np.array_equal(model.classes_, subject.classes):
        return np.asarray(own(X))
    return np.log(subject.recipe.probabilities(model, X, subject.classes))
