"""Training on public records first: a frozen encoder made of them, and a linear last step on the people's own.

The encoder holds nobody of the training data, so that the last step alone can tell of anybody, and its engine answers.
"""

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privgate.advice.change import Change, Replacement
from privgate.advice.knobs import KNOBS, learners
from privgate.errors import UsageError
from privgate.models import FrozenEncoder
from privgate.subject import estimators
from privgate.subject.subject import Subject

Float = NDArray[np.float64]

#: units of the one hidden layer: an advice holds each of its numbers once a candidate
WIDTH = 32
_ROUNDS = 200


@dataclass(frozen=True, eq=False)
class Public:
    """Records of nobody in the training data, which whoever names them may use and show.

    Parameters
    ----------
    X : float64 array of shape (n, d)
    y : array of shape (n,)
        Labels, of whatever kind: the encoder is made to tell them apart.
    source : str
        Where they come from; the recipe says it.
    """

    X: Float
    y: NDArray[Any]
    source: str

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the arrays X and y of an ``.npz`` file.

        Raises
        ------
        UsageError
            There is no such file, or it does not hold a table of finite numbers and a label each.
        """
        try:
            with np.load(path, allow_pickle=False) as found:
                made = cls(np.asarray(found["X"], dtype=np.float64), np.asarray(found["y"]), f"public file {path.name}")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as exc:
            raise UsageError(f"--public {path}: no .npz file with arrays X of numbers and y: {exc}") from exc
        if made.X.ndim != 2 or made.y.shape != made.X.shape[:1] or not np.isfinite(made.X).all():
            raise UsageError(f"--public {path}: X must be a table of finite numbers, and y one label for each record")
        if len(np.unique(made.y)) < 2:
            raise UsageError(f"--public {path}: y holds one label only, and an encoder learns to tell labels apart")
        return made


def unfit(subject: Subject, public: Public) -> str:
    """Return why the subject's recipe has no such form; empty if it has.

    Raises
    ------
    UsageError
        Public records are not public: training records are among them.
    """
    payload = subject.recipe.payload
    if payload["kind"] != "estimator" or payload["predict"] is not None or payload["dp"] is not None:
        return "only an estimator without a function of its own and without a privacy claim is replaced"
    if subject.task != "classification" or subject.recipe.own_model is not None:
        return "only classifiers that are no model of privgate's are replaced"
    try:
        own = np.asarray(subject.data.X, dtype=np.float64)
    except (TypeError, ValueError):
        return "training records are no table of numbers"
    if own.ndim != 2 or own.shape[1] != public.X.shape[1] or not np.isfinite(own).all():
        return f"training records are no table of {public.X.shape[1]} finite numbers, as the public ones are"
    known = {row.tobytes() for row in own + 0.0}  # -0 and 0 are one number
    if shared := sum(row.tobytes() in known for row in public.X + 0.0):
        raise UsageError(f"{shared} of {len(public.X)} public records are training records: they are not public")
    return ""


def encoder(public: Public) -> FrozenEncoder:
    """Return the scaled hidden layer of a perceptron trained on public records; the same for the same records."""
    from sklearn.neural_network import MLPClassifier

    mean, deviation = public.X.mean(axis=0), public.X.std(axis=0)
    deviation[deviation == 0] = 1.0
    network = MLPClassifier((WIDTH,), activation="tanh", max_iter=_ROUNDS, early_stopping=True, random_state=0)
    network.fit((public.X - mean) / deviation, public.y)
    weights = network.coefs_[0] / deviation[:, None]
    intercepts = network.intercepts_[0] - mean @ weights
    # bounded answers: no single record can be far from all others
    return FrozenEncoder.made([(weights, intercepts), "tanh"], public=public.source)


def scale(subject: Subject, public: Public) -> Callable[[float], Change]:
    """Return the change at a part of the way, 0 to 1, from a last step that is hardly penalised to a strongly so."""
    first, knob = encoder(public), KNOBS["LogisticRegression"][0]
    return lambda part: change(subject, public, first, float(knob.between(knob.weakest, part)))


def change(subject: Subject, public: Public, first: FrozenEncoder, C: float) -> Change:
    """Return the change with one penalty of the last step."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    beside = dict(KNOBS["LogisticRegression"][0].beside)
    last = LogisticRegression(C=C, **beside, max_iter=1000, random_state=subject.recipe.payload["seed"])
    return Change(
        says=f"pre-trained on {len(public.X)} public records, the encoder of {WIDTH} units frozen, and logistic "
        f"regression with C {C:g}",
        kind="pretrained",
        learner=Replacement(place=("estimator",), spec=estimators.encode(make_pipeline(first, last))),
    )


def again(subject: Subject, public: Public, proposed: Change) -> Change | None:
    """Return the change made anew from public records, as an advice proposes it; None where it proposes another.

    Whoever edits an advice must not choose an encoder that was trained on somebody.
    """
    spec = {} if proposed.learner is None else proposed.learner.spec
    found = [params.get("C") for _, _, params in learners({"kind": "estimator", "estimator": spec})]
    penalties = [C for C in found if isinstance(C, float) and C > 0]
    if len(penalties) != 1:
        return None
    made = change(subject, public, encoder(public), penalties[0])
    return made if made == proposed else None
