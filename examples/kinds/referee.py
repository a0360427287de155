"""Who was approved or blocked rightly: models refitted here by hand, without anything of the gate's engines."""

import warnings
from typing import Any

import numpy as np
import pandas as pd

from privgate import Subject

PEOPLE = 12


def disagreement(subject: Subject, records: pd.DataFrame, *, approved: bool, limit: float) -> str:
    """Return why independent refits contradict a verdict on the largest PDTP; empty where they do not.

    The people whom the report calls the riskiest are left out of training, one after another, and some others drawn at
    random; the change of any label's probability at their own features is compared with the limit. An approval is
    contradicted by one person above it, a block by nobody being above it among the riskiest.
    """
    data, recipe = subject.data, subject.recipe
    place = {str(name): u for u, name in enumerate(data.unit_names)}  # a run that stopped early has few rows
    riskiest = records.sort_values("pdtp_low", ascending=False, kind="stable")["unit"].astype(str)[:PEOPLE]
    others = np.random.default_rng(5).choice(len(place), min(PEOPLE, len(place)), replace=False)
    chosen = [*(place[name] for name in riskiest), *others.tolist()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = recipe.train(data.X, data.y, seed=recipe.seed)
        found = [_change(subject, whole, int(u)) for u in dict.fromkeys(chosen)]
    above = [v for v in found if v > limit + 1e-6]
    if approved and above:
        return (
            f"approved, but {len(above)} of {len(found)} people refitted are above {limit:g}, by up to {max(above):.3g}"
        )
    if not approved and not above:
        return f"blocked, but none of {len(found)} people refitted is above {limit:g}: at most {max(found):.3g}"
    return ""


def _change(subject: Subject, whole: Any, unit: int) -> float:
    data, recipe = subject.data, subject.recipe
    rows = data.units[unit]
    kept = np.setdiff1d(np.arange(data.n), rows)
    pick = (lambda r: data.X.iloc[r]) if isinstance(data.X, pd.DataFrame) else (lambda r: data.X[r])
    other = recipe.train(pick(kept), data.y[kept], seed=recipe.seed)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p = [np.log(recipe.probabilities(m, pick(rows), subject.classes)) for m in (whole, other)]
        moved = np.abs(log_p[0] - log_p[1])
    return float(np.nanmax(np.where(np.isneginf(log_p[0]) & np.isneginf(log_p[1]), 0.0, moved)))
