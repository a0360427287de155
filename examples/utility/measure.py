"""One learner on one data set: what it is good for, what is proven of it, what attacks find, what it costs."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import log_loss, roc_auc_score

from privgate import PrivgateError, Recipe, Subject
from privgate.membership.attacks import BY_NAME, Signals
from privgate.models import Sharded
from privgate.statistics.roc import auc, tpr_at_fpr
from privgate.theorems import catalogue, pipelines
from privgate.theorems.catalogue import find_closed_form
from privgate.theorems.closed_form import RefitRequest
from utility.learners import DTP, Learner
from utility.tables import Float, Index, Table

ATTACKS = ("lira_online", "rmia")
#: log-probabilities below this count as this in the mean loss: a forest that answers 0 would make it infinite
DEEPEST = -20.0


def measured(learner: Learner, table: Table, *, seeds: int, people: int, shadows: int, targets: int) -> dict[str, Any]:
    """Return one row as JSON values; a part that could not be measured is a sentence in ``problems``."""
    row: dict[str, Any] = {
        "data": learner.data,
        "learner": learner.name,
        "guarantee": learner.guarantee,
        "train": table.train,
        "test": table.test,
        "problems": {},
    }
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "use": lambda: useful(learner, table, seeds),
        "deletion": lambda: deletion(learner, table),
        "attack": lambda: attacked(learner, table, shadows=shadows, targets=targets),
        "proof": lambda: proven(learner, table, people),
    }
    for name, part in parts.items():
        try:
            row[name] = part()
        except (PrivgateError, ValueError, ArithmeticError) as exc:
            row["problems"][name] = f"{type(exc).__name__}: {exc}"
    return row


def _log_p(model: Any, X: Float, labels: list[int]) -> Float:
    """Return log-probabilities of all labels; one that training did not see has none."""
    out = np.full((len(X), len(labels)), -np.inf)
    with np.errstate(divide="ignore"):
        out[:, np.searchsorted(labels, model.classes_)] = np.log(model.predict_proba(X))
    return out


def useful(learner: Learner, table: Table, seeds: int) -> dict[str, Any]:
    """Return means and standard errors over as many draws of training and test sets."""
    found, seconds = [], []
    for seed in range(seeds):
        X, y, asked, truth = table.split(seed)
        started = time.process_time()
        model: Any = learner.make(table, seed).fit(X, y)
        seconds.append(time.process_time() - started)
        log_p = _log_p(model, asked, table.labels)
        p = np.exp(np.maximum(log_p, DEEPEST))
        p /= p.sum(axis=1, keepdims=True)
        area = roc_auc_score(truth, p[:, 1]) if p.shape[1] == 2 else _area(truth, p)
        right = (log_p.argmax(axis=1) == truth).mean()
        found.append([float(right), float(log_loss(truth, p, labels=table.labels)), float(area)])
    mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(seeds) if seeds > 1 else [np.nan] * 3
    named = dict(zip(("accuracy", "log_loss", "auc"), zip(mean, error, strict=True), strict=True))
    return {"seeds": seeds, "training": float(np.mean(seconds)), **{k: list(map(float, v)) for k, v in named.items()}}


def _area(truth: Index, p: Float) -> float:
    """Return the mean over labels that occur of each against the rest."""
    each = [roc_auc_score(truth == c, p[:, c]) for c in np.unique(truth)]
    return float(np.mean(each))


def deletion(learner: Learner, table: Table) -> dict[str, Any]:
    """Return CPU seconds of training without one person: one member of ``Sharded``, everything elsewhere."""
    X, y, *_ = table.split(0)
    model = learner.make(table, 0)
    whole = model.fit(X, y) if isinstance(model, Sharded) else None
    started = time.process_time()
    if whole is not None:
        gone = int(whole.shard_of(X[:1])[0])
        clone(whole).refit(X[1:], y[1:], {m: v for m, v in enumerate(whole.members_) if m != gone})
    else:
        learner.make(table, 0).fit(X[1:], y[1:])
    return {"seconds": time.process_time() - started, "parts": model.shards if isinstance(model, Sharded) else 1}


def attacked(learner: Learner, table: Table, *, shadows: int, targets: int) -> dict[str, Any]:
    """Return the strongest attack's mean AUC and TPR at 1 % over some targets, all of them halves of one pool."""
    pool = min(len(table.y), 2 * table.train)
    order = np.random.default_rng(1).permutation(len(table.y))[:pool]
    X, y = table.X[order], table.y[order]
    rng = np.random.default_rng(2)
    halves = [rng.permutation(pool) < pool // 2 for _ in range((shadows + targets) // 2)]
    masks = np.stack([side for half in halves for side in (half, ~half)])
    log_p = np.stack([_log_p(learner.make(table, i).fit(X[m], y[m]), X, table.labels) for i, m in enumerate(masks)])
    found = {name: _power(name, log_p, y, masks, targets) for name in ATTACKS}
    best = max(found, key=lambda name: found[name][0])
    area, rate = found[best]
    return {
        "attack": best,
        "auc": float(area),
        "tpr": float(rate),
        "people": pool // 2,
        "shadows": len(masks) - targets,
        "targets": targets,
        "all": {name: [float(v) for v in values] for name, values in found.items()},
    }


def _power(name: str, log_p: Float, y: Index, masks: NDArray[np.bool_], targets: int) -> Float:
    rows, rng = [], np.random.default_rng(4)
    for t in range(targets):
        scores = BY_NAME[name].scores(Signals(log_p[t], y, log_p[targets:], masks[targets:]), rng)
        rows.append([auc(scores, masks[t]), tpr_at_fpr(scores, masks[t], fpr=0.01)])
    return np.asarray(np.mean(rows, axis=0))


def proven(learner: Learner, table: Table, people: int) -> dict[str, Any]:
    """Return what engines and theorems say of the influence of people drawn at random, and CPU seconds of asking them.

    Where no theorem speaks, people are left out by training again, and asked about their own record.
    """
    if learner.guarantee:
        return {"people": 0, "theorems": []}
    subject = Subject.local(Recipe(learner.make(table, 0), seed=0), table.data(0))
    everybody = len(subject.data.units)
    units = np.sort(np.random.default_rng(3).choice(everybody, min(people, everybody), replace=False)).astype(np.int64)
    started = time.process_time()
    theorems = catalogue.applicable(subject)[0]
    if not theorems:
        upper, lower = np.full(len(units), np.inf), seen(learner, table, units)
    else:
        made = None
        if all(t.needs_retrained for t in theorems):
            engine = find_closed_form(subject)[0]
            nobody: Any = None  # closed forms that theorems rest on train nobody
            if engine is None:
                raise ArithmeticError(f"no closed form answers for {theorems[0].name}")
            made, left = engine.answers(RefitRequest(pipelines.seen(subject).subject, units, (0,), nobody))
            if len(left):
                raise ArithmeticError(f"{engine.name} left {len(left)} of {len(units)} people without an answer")
        found = catalogue.bound(subject, units, made, limit=DTP)[0]
        upper, lower = found.upper, found.lower
    return {
        "people": len(units),
        "of": everybody,
        "upper": _finite(upper.max()),
        "median": _finite(np.median(upper)),
        "seen": _finite(lower.max()),
        "within": int((upper <= DTP).sum()),
        "broken": int((lower > DTP).sum()),
        "theorems": [t.name for t in theorems],
        "seconds": time.process_time() - started,
    }


def seen(learner: Learner, table: Table, units: Index) -> Float:
    """Return the change of people's own answers when the model is trained without them, nats, shape (U,)."""
    X, y, *_ = table.split(0)
    whole = _log_p(learner.make(table, 0).fit(X, y), X[units], table.labels)
    moved = np.zeros(len(units))
    for i, u in enumerate(units):
        keep = np.arange(len(y)) != u
        less = _log_p(learner.make(table, 0).fit(X[keep], y[keep]), X[u : u + 1], table.labels)
        with np.errstate(invalid="ignore"):
            gap = np.abs(whole[i] - less[0])
        moved[i] = np.nanmax(np.where(np.isneginf(whole[i]) & np.isneginf(less[0]), 0.0, gap))
    return moved


def _finite(value: float) -> float | None:
    """Return a number that JSON has; None stands for no limit."""
    return float(value) if np.isfinite(value) else None
