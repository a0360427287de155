"""A fleet that trains here and now: the same calls, without workers and without a memory."""

import warnings
from types import SimpleNamespace

import numpy as np

from privgate.errors import SubjectError
from privgate.subject.containers import take
from privgate.theorems import affine_scores
from privgate.training.fit import Answer, select
from privgate.training.fleet import Fleet
from privgate.training.ledger import Ledger

RAISED = (ValueError, IndexError, FloatingPointError, np.linalg.LinAlgError, SubjectError)


class InProcess(Fleet):
    """Counts its calls, and keeps what was asked; the calls numbered in ``fail`` fail."""

    def __init__(self, fail=()):
        self.isolate, self.cluster, self.signable, self.network, self.recalled = "none", None, False, False, 0
        self._pool = None
        self.report = print
        self.calls, self.asked, self.fail = 0, [], set(fail)
        self.ledger, self._contexts, self._trained_on, self.jobs = Ledger("none"), {}, {}, 1

    def examined(self, subject, by, *given):
        return {"files": []} if by.startswith("privgate.controls.opened:") else {"problem": "no process of its own"}

    def compute(self, subject, function, *given):
        return function(*given)

    def fits(self, subject, fits, *, label="retraining"):
        return [self._fit(subject, f) for f in fits]

    def alone(self, subject, fit):
        return None

    def _fit(self, subject, fit):
        self.calls += 1
        self.asked.append(fit)
        if self.calls in self.fail:
            return Answer(np.zeros((0, 0)), problem="killed by the test")
        X, y = subject.data.pool()
        records, labels = select(X, y, subject.data.n, subject.classes, fit)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = subject.recipe.train(records, labels, seed=fit.seed)
                p = subject.recipe.probabilities(model, take(X, fit.queries), subject.classes)
                with np.errstate(divide="ignore"):
                    log_p = np.log(p)
            if fit.reads[1]:
                opened = SimpleNamespace(
                    recipe=subject.recipe, classes=subject.classes, X=X, domain=subject.data.domain.payload()
                )
                log_p = np.concatenate([log_p, affine_scores.table(opened, model, fit.reads[1])])
        except RAISED as exc:
            return Answer(np.zeros((0, 0)), problem=f"{type(exc).__name__}: {exc}")
        return Answer(log_p)

    def registered(self, subject, rows):
        raise AssertionError("a local subject has no stored model")
