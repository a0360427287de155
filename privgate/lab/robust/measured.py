"""In a worker: the registered model's distances, and those of one shadow model that the adversary trains."""

import re
import tempfile
import traceback
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.errors import SubjectError
from privgate.lab.robust import distances
from privgate.subject.containers import take
from privgate.subject.subject import Subject
from privgate.training import payload
from privgate.training.apart import apart
from privgate.training.fleet import Fleet
from privgate.training.limits import Clock, OutOfTimeError, TaskLimits
from privgate.training.payload import Opened, Payload

Float = NDArray[np.float64]
Index = NDArray[np.int64]

#: trainings: the target where none is registered, and the shadow model
TRAININGS = 2
#: how closely a network's own answers must agree with the model's, so that descending it says something
AGREE = 1e-3


def measured(subject: Subject, fleet: Fleet, asked: Index, shadow: Index, shadow_asked: Index) -> dict[str, Any]:
    """Return ``{"how", "target", "shadow"}``: distances (n, 3) of both models at pool rows; or ``{"problem"}``.

    Parameters
    ----------
    subject : Subject
    fleet : Fleet
        Whose limits and box hold.
    asked, shadow_asked : int64 arrays
        Pool rows at which the target and the shadow model are looked at.
    shadow : int64 array
        Pool rows that the shadow model is trained on.
    """
    with tempfile.TemporaryDirectory(prefix="privgate-robust-") as folder:
        shipped = payload.write(subject, Path(folder, "shown") / "subject")
        found = apart(
            in_worker,
            shipped,
            asked.tolist(),
            shadow.tolist(),
            shadow_asked.tolist(),
            fleet.limits,
            limits=fleet.limits,
            runs=TRAININGS + 2,
            way=fleet.isolate,
            logs=Path(folder),
        )
    fleet.calls += TRAININGS
    return found if isinstance(found, dict) else {"problem": "the worker process died while distances were measured"}


def in_worker(
    shipped: Payload, asked: list[int], shadow: list[int], shadow_asked: list[int], limits: TaskLimits
) -> dict[str, Any]:
    """Return JSON values; runs in the worker."""
    try:
        with Clock(limits.seconds * (TRAININGS + 2)) as clock, clock.call():
            opened = Opened(shipped)
            table = _table(opened)
            box = table.min(axis=0), table.max(axis=0)
            registered = (opened.root / "model.pkl").is_file()
            target = opened.model if registered else _trained(opened, list(range(opened.n)))
            how, found = _distances(opened, target, table, box, asked)
            other = _trained(opened, shadow)
            same, beside = _distances(opened, other, table, box, shadow_asked)
        if how != same:
            return {"problem": f"the model is looked at {how}, the shadow model {same}: they cannot be compared"}
        return {"how": how, "target": found.tolist(), "shadow": beside.tolist(), "registered": registered}
    except OutOfTimeError:
        return {"problem": f"distances were not measured within {limits.seconds * (TRAININGS + 2):g} s"}
    except SubjectError as exc:
        return {"problem": str(exc)}
    except BaseException as exc:  # noqa: BLE001  the user's code runs here; what it raises becomes a sentence
        traceback.print_exception(exc)
        # quoted values may be somebody's data
        said = re.sub(r"'[^']*'|\"[^\"]*\"", "'…'", str(exc).strip().partition("\n")[0])[:200]
        return {"problem": f"measuring distances raised {type(exc).__name__}" + (f": {said}" if said else "")}


def _table(opened: Opened) -> Float:
    X = np.asarray(opened.X) if isinstance(opened.X, np.ndarray) else None
    if X is None or X.dtype.kind not in "biuf":
        raise SubjectError("records that are no arrays of numbers have no distance from a boundary")
    return X.reshape(len(X), -1).astype(np.float64)


def _trained(opened: Opened, rows: list[int]) -> Any:
    return opened.recipe.train(take(opened.X, np.array(rows)), opened.y[rows].copy(), seed=opened.recipe.seed)


def _distances(
    opened: Opened, model: Any, table: Float, box: tuple[Float, Float], rows: list[int]
) -> tuple[str, Float]:
    """Return how distances were measured, in words, and the distances (n, 3)."""
    X, y = table[rows], np.searchsorted(opened.classes, opened.y[rows]).astype(np.int64)
    shape = np.asarray(opened.X).shape[1:]

    def likelihood(Z: Float) -> Float:
        return opened.recipe.probabilities(model, Z.reshape(len(Z), *shape).astype(opened.X.dtype), opened.classes)

    def ask(Z: Float) -> Index:
        return np.asarray(likelihood(Z).argmax(axis=1), dtype=np.int64)

    if opened.recipe.payload["predict"] is None:
        if (flat := _linear(model, opened.classes)) is not None and _agrees(flat, X, likelihood):
            return "exactly, as a linear model", distances.linear(*flat, X, y)
        if _is_tree(model) and len(model.classes_) == len(opened.classes):
            low, high, answers = distances.leaves(model)
            if (distances.answered(low, high, answers, X) == ask(X)).all():
                return "exactly, leaf by leaf", distances.tree(low, high, answers, X, y)
    rng = np.random.default_rng(0)
    drawn = distances.along_random_directions(ask, X, y, box, rng)
    if (logits := _logits(model, shape, likelihood, X)) is not None:
        # where a network is saturated descent stands still, and random directions do not
        return "by projected gradient descent", np.minimum(distances.network(logits, X, y, box), drawn)
    return "along random directions", drawn


def _linear(model: Any, classes: NDArray[Any]) -> tuple[Float, Float] | None:
    """Return weights (K, d) and intercepts (K,) of a linear classifier, behind a scaler or none; None for others."""
    steps = [step for _, step in getattr(model, "steps", [("", model)])]
    last = steps[-1]
    if not (hasattr(last, "coef_") and hasattr(last, "intercept_") and hasattr(last, "classes_")):
        return None
    if len(steps) > 2 or len(last.classes_) != len(classes) or not all(map(_of_scikit_learn, (model, last, steps[0]))):
        return None
    W, b = np.atleast_2d(np.asarray(last.coef_, dtype=np.float64)), np.atleast_1d(last.intercept_).astype(np.float64)
    if len(W) == 1:  # two classes, one score
        W, b = np.concatenate([-W, W]) / 2, np.concatenate([-b, b]) / 2
    if len(steps) == 2:
        scale, mean = getattr(steps[0], "scale_", None), getattr(steps[0], "mean_", None)
        if scale is None or mean is None or type(steps[0]).__name__ != "StandardScaler":
            return None
        W = W / scale
        b = b - W @ mean
    return W, b


def _agrees(flat: tuple[Float, Float], X: Float, likelihood: Any) -> bool:
    """Whether the largest linear score is the model's own answer at the records."""
    W, b = flat
    scores, p = X @ W.T + b, likelihood(X)
    top = np.sort(p, axis=1)
    clear = top[:, -1] - top[:, -2] > 1e-9 if p.shape[1] > 1 else np.ones(len(p), dtype=bool)
    return bool(clear.any() and (scores.argmax(axis=1) == p.argmax(axis=1))[clear].all())


def _of_scikit_learn(model: Any) -> bool:
    """Whether an attribute means what scikit-learn means by it: a class of its own may answer otherwise."""
    return type(model).__module__.partition(".")[0] == "sklearn"


def _is_tree(model: Any) -> bool:
    return _of_scikit_learn(model) and hasattr(model, "tree_") and hasattr(model, "classes_")


def _logits(model: Any, shape: tuple[int, ...], likelihood: Any, X: Float) -> Any:
    """Return the differentiable scores behind the model's answers, if a module of torch gives them; else None."""
    import sys

    torch = sys.modules.get("torch")
    if torch is None:
        return None
    held = [model, *(vars(model).values() if hasattr(model, "__dict__") else ())]
    for module in (m for m in held if isinstance(m, torch.nn.Module)):
        module.eval()
        for given in dict.fromkeys([shape, (int(np.prod(shape)),)]):

            def scores(x: Any, module: Any = module, given: tuple[int, ...] = given) -> Any:
                return module(x.reshape(len(x), *given))

            try:
                with torch.no_grad():
                    own = torch.softmax(scores(torch.as_tensor(X[:64], dtype=torch.float32)), 1).double().numpy()
            except (RuntimeError, TypeError, ValueError, IndexError):
                continue
            seen = likelihood(X[:64])
            if own.shape == seen.shape and np.abs(own - seen).max() <= AGREE:
                return scores
    return None
