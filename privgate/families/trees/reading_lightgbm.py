"""Reading fitted ensembles of LightGBM from the text that it stores."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.families.trees import branches
from privgate.families.trees.branches import Run, Tree
from privgate.families.trees.ensemble import Ensemble, Index
from privgate.families.trees.joined import UnreadableError, joined

#: what LightGBM takes for 0
ZERO = float(np.float32(1e-35))


def lightgbm(model: Any, X: NDArray[Any], lost: list[Index] | None = None) -> Ensemble:
    """Return the trees of ``LGBMClassifier``."""
    text = model.booster_.model_to_string()
    head, _, body = text.partition("\nTree=")
    said = dict(line.partition("=")[::2] for line in head.splitlines() if "=" in line)
    if "average_output" in head.split():
        raise UnreadableError("LightGBM averages its trees (boosting rf)")
    objective = said.get("objective", "").split()
    if objective[:1] not in (["binary"], ["multiclass"]):
        raise UnreadableError(f"LightGBM's objective is {' '.join(objective) or 'unknown'}")
    blocks = body.partition("end of trees")[0].split("\nTree=") if body else []
    trees = [_lightgbm_tree(dict(line.partition("=")[::2] for line in b.splitlines() if "=" in line)) for b in blocks]
    if not trees:
        raise UnreadableError("the ensemble has no tree")
    G = int(said.get("num_tree_per_iteration", "1"))
    options = dict(o.split(":") for o in objective if ":" in o)
    return Ensemble(
        link="logistic" if objective[0] == "binary" else "softmax",
        **joined(trees, lost),
        group=(np.arange(len(trees)) % G).astype(np.int32),
        base=np.zeros(G),  # it is in the first trees
        scale=float(options.get("sigmoid", 1.0)) if objective[0] == "binary" else 1.0,
        cast=np.asarray(X).dtype != np.float64,  # whole numbers become single precision, too
    )


def _lightgbm_tree(said: dict[str, str]) -> Tree:
    if said.get("is_linear", "0") != "0":
        raise UnreadableError("LightGBM's leaves are linear (linear_tree)")
    value = np.array(said["leaf_value"].split(), dtype=np.float64)
    if said["num_leaves"] == "1":
        return (np.array([-1]), np.zeros(1), np.zeros(1), np.zeros(1), value[:1], np.zeros(1))
    feature = np.array(said["split_feature"].split(), dtype=np.int64)
    kind = np.array(said["decision_type"].split(), dtype=np.int64)
    named = (kind & 1).astype(bool)
    if (~named & (kind >> 2 & 3 == 1)).any():
        raise UnreadableError("LightGBM takes zero for missing")
    threshold = np.array(said["threshold"].split(), dtype=np.float64)
    # it takes numbers up to this size for 0, so the lower of its two thresholds next to 0 lets that number right
    threshold = np.where((threshold >= -ZERO) & (threshold < 0), np.nextafter(-ZERO, -np.inf), threshold)
    inner, leaves = len(feature), len(value)
    child = [np.array(said[f"{side}_child"].split(), dtype=np.int64) for side in ("left", "right")]
    child = [np.where(c >= 0, c, inner + ~c) for c in child]
    # without missing values in training, one is taken for 0; with them, a node has a default
    lost = np.where(np.where(kind >> 2 & 3 == 2, kind >> 1 & 1 == 1, threshold >= 0), child[0], child[1])
    none = np.zeros(leaves)
    tree = (
        np.append(feature, none - 1).astype(np.int64),
        np.append(threshold, none),
        np.append(child[0], none),
        np.append(child[1], none),
        np.append(np.zeros(inner), value),
        np.append(lost, none),
    )
    if not named.any():
        return tree
    edges = np.array(said["cat_boundaries"].split(), dtype=np.int64)
    words = np.array(said["cat_threshold"].split(), dtype=np.uint32)
    runs = list[Run]()
    for node in np.flatnonzero(named).tolist():
        at = int(threshold[node])
        bits = words[edges[at] : edges[at + 1]]
        codes = np.arange(32 * len(bits))
        there = (bits[codes // 32] >> (codes % 32).astype(np.uint32) & 1).astype(bool)
        sides = np.where(there, child[0][node], child[1][node])
        # it cuts fractions off towards 0, and sends what is below 0, unknown or missing right
        cuts = np.append(-1.0, np.nextafter(codes + 1.0, 0.0))
        ends = child[1][node]
        runs.append((node, int(feature[node]), cuts, np.concatenate([[ends], sides, [ends]]), int(ends)))
    return branches.with_runs(tree, runs)
