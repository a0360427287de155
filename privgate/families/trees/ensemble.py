"""A fitted ensemble of trees as arrays: what it answers at every question, and nothing of the library that made it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privgate import digest
from privgate.arrays import Float, Index
from privgate.kernel import Case

Whole = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Trees, and how their leaves become probabilities.

    Parameters
    ----------
    link : {"logistic", "softmax", "mean"}
        Sums of leaves through a logistic function or a softmax, or the mean of leaves that are distributions.
    start : int32 array of shape (T + 1,)
        Tree t has nodes ``start[t] .. start[t + 1] - 1``, its root first.
    feature : int32 array of shape (N,)
        Feature of each node's question; -1 at a leaf.
    cut : float64 array of shape (N,)
        A number of at most this goes left; infinity does so at infinity only.
    left, right : int32 arrays of shape (N,)
        Nodes, counted over all trees.
    value : float64 array of shape (N, V)
        V is 1 for sums, the number of classes for means.
    group : int32 array of shape (T,)
        Which score a tree adds to.
    base : float64 array of shape (G,)
        Scores before any tree: one for two classes, otherwise one a class.
    base_error : float
        How far the library's own base may be from it.
    scale : float
        What the logistic function multiplies the score by.
    floor : float
        Added to each mean probability before they are normalised again.
    single : bool
        Whether sums and link are computed in single precision.
    cast : bool
        Whether questions are rounded to single precision before they are compared.
    rounds : bool
        Whether questions of another number type than the records are, even where the records' own are not.
    width : int
        Features of a question; half of those that the trees ask about, whose second half says which are missing. 0
        where no value may be missing.
    lost : int32 array of shape (N,), optional
        Where a missing value goes at each node.
    """

    link: Literal["logistic", "softmax", "mean"]
    start: Whole
    feature: Whole
    cut: Float
    left: Whole
    right: Whole
    value: Float
    group: Whole
    base: Float
    base_error: float = 0.0
    scale: float = 1.0
    floor: float = 0.0
    single: bool = False
    cast: bool = False
    rounds: bool = False
    width: int = 0
    lost: Whole | None = None

    def __post_init__(self) -> None:
        inner = self.feature >= 0
        if np.isnan(self.cut[inner]).any() or not np.isfinite(self.value[~inner]).all():
            raise FloatingPointError("a tree holds a threshold that is no number, or a leaf that is no finite one")

    @property
    def trees(self) -> int:
        """T."""
        return len(self.start) - 1

    def with_missing(self, missing: NDArray[np.bool_]) -> "Ensemble":
        """Return the same ensemble about twice the features: whether one is missing comes after all of them.

        A node first asks whether its feature is missing, then what it asked before; so cells stay boxes.

        Parameters
        ----------
        missing : bool array of shape (d,)
            Which features may be missing.
        """
        assert self.lost is not None  # noqa: S101  readers of libraries say where missing values go
        d, N = len(missing), len(self.feature)
        asked = np.flatnonzero((self.feature >= 0) & missing[np.maximum(self.feature, 0)])
        moved = N + np.arange(len(asked))
        feature, cut = np.append(self.feature, self.feature[asked]), np.append(self.cut, self.cut[asked])
        left, right = np.append(self.left, self.left[asked]), np.append(self.right, self.right[asked])
        feature[asked] += np.int32(d)
        cut[asked], left[asked], right[asked] = 0.0, moved, self.lost[asked]
        value = np.concatenate([self.value, np.zeros((len(asked), self.value.shape[1]))])
        start = np.append(self.start[:-1], len(feature)).astype(np.int32)
        return replace(self, start=start, feature=feature, cut=cut, left=left, right=right, value=value, width=d)

    def leaf_sums(self, X: Float) -> Float:
        """Return the sums of leaves at questions (n, d), in exact order of trees: (n, G) scores, or (n, C) of means."""
        X = X.astype(np.float32).astype(np.float64) if self.cast else X
        if self.width:
            lost = np.isnan(X)
            X = np.concatenate([np.where(lost, 0.0, X), lost.astype(np.float64)], axis=1)
        node = np.repeat(self.start[None, :-1].astype(np.int64), len(X), axis=0)
        row = np.arange(len(X))[:, None]
        while (inner := self.feature[node] >= 0).any():
            goes_left = X[row, np.maximum(self.feature[node], 0)] <= self.cut[node]
            node = np.where(inner, np.where(goes_left, self.left[node], self.right[node]), node)
        leaf = self.value[node]  # (n, T, V)
        if self.link == "mean":
            return np.asarray(leaf.sum(axis=1))
        sums = np.repeat(self.base[None], len(X), axis=0)
        for g in range(len(self.base)):
            sums[:, g] += leaf[:, self.group == g, 0].sum(axis=1)
        return sums

    def log_probabilities(self, X: Float) -> Float:
        """Return natural log-probabilities at questions (n, d), computed in float64."""
        sums = self.leaf_sums(X)
        if self.link == "mean":
            C = sums.shape[1]
            with np.errstate(divide="ignore"):
                return np.asarray(np.log((sums / self.trees + self.floor) / (1 + C * self.floor)))
        if self.link == "logistic":
            z = self.scale * sums[:, 0]
            return np.column_stack([-np.logaddexp(0.0, z), -np.logaddexp(0.0, -z)])
        return np.asarray(sums - np.logaddexp.reduce(sums, axis=1, keepdims=True))


def case_of(ensembles: Sequence[Ensemble], box: Float, *, whole: bool = False) -> Case:
    """Return what the kernel is asked about cells, without partitions.

    Parameters
    ----------
    ensembles : sequence of Ensemble
        The one with everybody, then each without a person.
    box : float64 array of shape (2, d)
        Accepted questions; twice the features where values may be missing.
    whole : bool
        Whether every question is a vector of whole numbers.
    """
    first, sizes = ensembles[0], [len(e.feature) for e in ensembles]
    moved = np.append(0, np.cumsum(sizes))

    def column(name: str, shift: Index | None = None) -> Index:
        parts = [getattr(e, name).astype(np.int64) for e in ensembles]
        return np.concatenate(parts if shift is None else [p + s for p, s in zip(parts, shift, strict=False)])

    roots = [e.start[:-1].astype(np.int64) + s for e, s in zip(ensembles, moved, strict=False)]
    arrays = {
        "feature": column("feature"),
        "cut": np.concatenate([e.cut for e in ensembles]).astype(np.float64),
        "left": column("left", moved),
        "right": column("right", moved),
        "value": np.concatenate([e.value for e in ensembles]).astype(np.float64),
        "tree": np.append(np.concatenate(roots), moved[-1]),
        "model": np.cumsum([0, *(e.trees for e in ensembles)]),
        "group": column("group"),
        "base": np.array([e.base for e in ensembles], dtype=np.float64),
        "box": np.asarray(box, dtype=np.float64),
    }
    settings = {
        "link": first.link,
        "scale": float(first.scale),
        "single": bool(first.single),
        "cast": bool(first.cast or first.rounds),
    }
    settings |= {"base_off": max(float(e.base_error) for e in ensembles), "whole": whole}
    return Case("cells", "any", settings | ({"floor": float(first.floor)} if first.link == "mean" else {}), arrays)


def everybody(case: Case) -> str:
    """Return what names the model with everybody, the questions and the settings of a case of ``case_of``."""
    nodes, trees = int(case.arrays["tree"][case.arrays["model"][1]]), int(case.arrays["model"][1])
    parts = [case.arrays[name][:nodes] for name in _NODES] + [case.arrays["group"][:trees]]
    parts += [case.arrays["tree"][: trees + 1], case.arrays["base"][:1], case.arrays["box"]]
    named = {k: v for k, v in case.settings.items() if k != "base_off"}
    return digest.of_json([named, *(digest.of_array(p) for p in parts)])


#: arrays of one number, or one row, a node
_NODES = ("feature", "cut", "left", "right", "value")


def joined(cases: Sequence[Case]) -> Case:
    """Return one case about the people of all, whose models with everybody are the same; each has its partitions."""
    parts: dict[str, list[NDArray[Any]]] = {}
    first, moved = cases[0], 0
    nodes, trees = int(first.arrays["tree"][first.arrays["model"][1]]), int(first.arrays["model"][1])
    for case in cases:
        more = case.arrays
        # of the first case everything, of the others the model without their person
        n, t, b = (0, 0, 0) if case is first else (nodes, trees, 1)
        own = {name: more[name][n:] for name in ("feature", "cut", "value")}
        own |= {name: more[name][n:] + moved for name in ("left", "right")}
        own |= {"group": more["group"][t:], "base": more["base"][b:], "tree": more["tree"][t:-1] + moved}
        own |= {"model": np.diff(more["model"])[b:], "partition_start": np.diff(more["partition_start"])}
        own |= {name: more[name] for name in ("partition", "cuts", "ratio") if name in more}
        for name, part in own.items():
            parts.setdefault(name, []).append(part)
        moved += len(more["feature"]) - nodes
    arrays = {name: np.concatenate(part) for name, part in parts.items()}
    arrays |= {name: np.append(0, np.cumsum(arrays[name])) for name in ("model", "partition_start")}
    arrays |= {"tree": np.append(arrays["tree"], len(arrays["feature"])), "box": first.arrays["box"]}
    off = max(float(case.settings["base_off"]) for case in cases)
    return Case("cells", "any", {**first.settings, "base_off": off}, arrays)
