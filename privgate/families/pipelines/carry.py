"""First steps that learn: what they would have learnt without each unit, exactly, from sums, orders and counts.

Without a unit every feature that a scaler or an imputer makes is ``a z + b + g M`` of what it was, ``M`` marking the
records whose value was missing; categories stay what they are unless the unit holds one alone (docs/mathematics.md,
section 17.2). Units without whom a step does anything else are named, and refitted.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from privgate.families.pipelines import encoders, imputers, scalers, steps
from privgate.families.pipelines.carried import Carried, NotCarried, Who, numbers, unchanged

_CARRIED: dict[str, Callable[[Any, Carried, Who], Carried]] = {
    "StandardScaler": scalers.standard,
    "MinMaxScaler": scalers.extremes,
    "MaxAbsScaler": scalers.extremes,
    "SimpleImputer": imputers.imputer,
    "OneHotEncoder": encoders.categories,
    "OrdinalEncoder": encoders.categories,
}


def strange(step: Any) -> str:
    """Return why an unfitted step will not be carried; empty if it may be. Nothing else is fitted in this process."""
    kind = type(step).__name__
    if step is None or isinstance(step, str) or kind in _CARRIED:
        return ""
    if kind in ("Pipeline", "FeatureUnion", "ColumnTransformer"):
        return next((why for _, inner in steps.parts(step) if (why := strange(inner))), "")
    return f"what {kind} learns is not carried along" if steps.unfixed(step) else ""


def carry(step: Any, before: Carried, who: Who) -> Carried:
    """Return what a fitted step makes of the pool, and how that changes without each unit.

    Raises
    ------
    NotCarried
        It learns something that is not carried.
    """
    if step is None or step == "passthrough":
        return before
    kind = type(step).__name__
    if kind in ("FeatureUnion", "ColumnTransformer") and step.transformer_weights is not None:
        raise NotCarried("parts that are weighed are not carried along")
    if kind == "Pipeline":
        for _, inner in step.steps:
            before = carry(inner, before, who)
        return before
    if kind == "FeatureUnion":
        return _joined([carry(inner, before, who) for _, inner in step.transformer_list if inner != "drop"], before)
    if kind == "ColumnTransformer":
        return _by_columns(step, before, who)
    if not before.moved and not steps.unfixed(step):
        return unchanged(step.transform(before.raw), before)
    if kind not in _CARRIED:
        raise NotCarried(f"what {kind} learns is not carried along")
    return _CARRIED[kind](step, before, who)


def _by_columns(step: Any, before: Carried, who: Who) -> Carried:
    made = []
    for name, inner, _ in step.transformers_:
        where = step.output_indices_[name]
        if (isinstance(inner, str) and inner == "drop") or where.stop == where.start:
            continue
        at = list(step._transformer_to_input_indices[name])  # noqa: SLF001  how it resolved names, slices and selectors
        found = carry(inner, before.columns(at), who)
        if found.a.shape[1] != where.stop - where.start:
            raise NotCarried(f"step {name!r} gives another number of features than expected")
        made.append((where.start, found))
    return _joined([found for _, found in sorted(made, key=lambda pair: pair[0])], before)


def _joined(parts: Sequence[Carried], before: Carried) -> Carried:
    if not parts:
        raise NotCarried("the first steps give no feature")
    Z = np.column_stack([numbers(p) for p in parts])
    a, b, g, M = (np.concatenate([getattr(p, name) for p in parts], axis=1) for name in ("a", "b", "g", "M"))
    return Carried(Z, Z, a, b, g, M, np.logical_or.reduce([before.otherwise, *(p.otherwise for p in parts)]))
