"""Making a chosen change the next version: what may be proposed, training on public records first, and registering."""

import math
import re
import shlex
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privgate import registry
from privgate.advice.advice_page import Advice
from privgate.advice.change import BY_NAME, EARLY, KNOBS, Change, Place, Replacement, changed, learners
from privgate.advice.point import Point
from privgate.arrays import Float
from privgate.errors import PrivgateError, UsageError
from privgate.evidence import Count
from privgate.models import FrozenEncoder
from privgate.policy import Policy
from privgate.registry.load import data_place
from privgate.subject import estimators
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject

# Training on public records first: a frozen encoder made of them, and a linear last step on the people's own.
#
# The encoder holds nobody of the training data, so that the last step alone can tell of anybody, and its engine
# answers.

#: units of the one hidden layer: an advice holds each of its numbers once a candidate
WIDTH = 32
_ROUNDS = 200  # passes over the records, at most


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
        raise UsageError(f"{Count(shared)} of {len(public.X)} public records are training records: they are not public")
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


# What a search can propose and nothing else: advice is a file, and whoever edits it must not choose what is run.

#: learners that a search puts in place of a recipe's own, or around it
OURS = frozenset(
    {"privgate.models:Sharded", "privgate.models:KeyedForest", "privgate.torch_recipe:PrivateTorchTraining"}
)
#: what a recipe on a frozen encoder names
_PRETRAINED = frozenset({"sklearn.pipeline:Pipeline", "privgate.models:FrozenEncoder"}) | {
    "sklearn.linear_model._logistic:LogisticRegression",
    "sklearn.linear_model:LogisticRegression",
}
_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def before(subject: Subject, change: Change, public: Public | None = None) -> str:
    """Return why no search proposes such a change to the subject; empty if one could. Nothing is made yet."""
    if change.kind == "pretrained":
        if public is None:
            return "its encoder cannot be made again without the public records"
        why = unfit(subject, public)
        return why or ("" if again(subject, public, change) else "another encoder comes of these records")
    people = len(subject.data.units)
    if any(not 0 <= u < people for u in change.removed) or len(set(change.removed)) != len(change.removed):
        return f"it removes people that are not among the {people}, or somebody twice"
    turned = dict(_turned(subject.recipe.payload))
    if any(s.place not in turned for s in change.settings):
        return "it sets a parameter that no search turns"
    if any(isinstance(s.value, str) and s.value not in turned[s.place] for s in change.settings):
        return "it gives a parameter a text that no search gives"
    if change.learner is not None and (why := _misplaced(subject.recipe.payload, change.learner)):
        return why
    private = change.learner is not None and change.learner.spec["class"].endswith(":PrivateTorchTraining")
    if change.claim is not None and not private:
        return "it claims differential privacy for training that it leaves as it is"
    if change.shards < 0 or (change.shards and not 0 < change.dtp < math.inf):
        return "it trains in shards that there cannot be"
    return ""


def _misplaced(payload: Mapping[str, Any], learner: Replacement) -> str:
    if str(learner.spec.get("class")) not in OURS or estimators.keeps_state(learner.spec):
        return "it puts a learner in place that no search proposes"
    if learner.place not in {place for place, _, _ in learners(payload)}:
        return "it puts a learner where the recipe has none"
    return "it puts a learner in place that reads files" if estimators.names_files(learner.spec) else ""


def after(recipe: Recipe, made: Recipe, change: Change) -> str:
    """Return which code a changed recipe names that the recipe does not; empty where it names none but ours."""
    ours = OURS | _PRETRAINED if change.kind == "pretrained" else OURS
    new = set(_names(made.payload)) - set(_names(recipe.payload)) - ours
    return f"it names {min(new)!r}, which the recipe does not" if new else ""


def _turned(payload: Mapping[str, Any]) -> Iterator[tuple[Place, set[str]]]:
    """Yield every place of a recipe that a search may set, and the texts that it may put there."""
    if payload["kind"] == "function":
        for name in BY_NAME:
            yield ("params", name), set()
    for place, name, _ in learners(payload):
        texts: dict[str, set[str]] = {k.parameter: set() for k in KNOBS.get(name, ())}
        for knob in KNOBS.get(name, ()):
            texts |= {n: {v} for n, v in knob.beside if isinstance(v, str)} | {
                n: set() for n, v in knob.beside if not isinstance(v, str)
            }
        more = {EARLY[name][0]: set[str]()} if name in EARLY else {}
        for parameter, allowed in (texts | more).items():
            yield (*place, "params", parameter), allowed


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, str) and _NAME.fullmatch(value):
        yield value
    elif isinstance(value, dict):
        for inside in value.values():
            yield from _names(inside)
    elif isinstance(value, list | tuple):
        for inside in value:
            yield from _names(inside)


# Making a chosen change the next version: trained anew, registered beside the old one, judged like any other.


def apply(
    advice: Advice,
    number: int,
    *,
    tracking_uri: str | None = None,
    name: str | None = None,
    store: str | None = None,
    public: Public | None = None,
) -> tuple[str, Any]:
    """Train a candidate, log it with its recipe and register it; nothing is promoted.

    Parameters
    ----------
    advice : Advice
    number : int
        Of the candidate.
    tracking_uri : str, optional
    name : str, optional
        Registered model; the one that was judged if absent.
    store : str, optional
        As in ``log_model``. Data with a source need none; data that lie with the run of the judged version are put
        beside the new one likewise, and unchanged data below a store stay where they are.
    public : Public, optional
        The public records of the search, where the candidate was pre-trained on them: its encoder is made again.

    Returns
    -------
    tuple of (str, ModelInfo)
        Name of the registered model, and with ``registered_model_version`` what was logged.

    Raises
    ------
    UsageError
        There is no such candidate, it is not advised, or the model is not the one that the search started from.
    """
    known = {p.number: p for p in advice.points[1:]}
    if number not in known:
        raise UsageError(f"the advice has no change {number}; it has {', '.join(map(str, known)) or 'none'}")
    point = known[number]
    if point.change.games:
        raise UsageError(f"change {number} is not advised: {point.change.games}")
    if why := point.useless(advice.measure):
        raise UsageError(f"change {number} is not advised: {why}")
    if point.change.kind == "pretrained" and public is None:
        raise UsageError(f"change {number} was pre-trained on public records: name them again with --public FILE.npz")
    subject = registry.load_subject(advice.uri, tracking_uri=tracking_uri)
    if (subject.recipe.digest, subject.data.digest) != (advice.recipe, advice.data):
        raise UsageError(f"{advice.uri} is not what was advised on; run `privgate advise {advice.uri}` again")
    if why := before(subject, point.change, public):
        raise UsageError(f"change {number} is not what `privgate advise` proposes: {why}")
    try:
        made = changed(subject, point.change)
        why = after(subject.recipe, made.recipe, point.change)
    except (LookupError, TypeError, ValueError) as exc:
        why = f"it does not fit the recipe ({type(exc).__name__})"
    if why:
        raise UsageError(f"change {number} is not what `privgate advise` proposes: {why}")
    if (made.recipe.digest, made.data.digest) != (point.recipe, point.data):
        raise UsageError(
            f"change {number} as it is made here is not what was measured; run `privgate advise {advice.uri}` again"
        )
    tags = {
        "privgate.advised_from": advice.uri,
        "privgate.advised_change": point.change.says[:250],
        # whoever reads the approval sees out of how many it was chosen
        "privgate.advised_candidates": str(len(advice.points) - 1),
    }
    registered = name or subject.name
    if store is None and subject.detail.get("data_kind") == "run" and not point.change.removed:
        store = "artifacts"
    info = registry.log_model(
        made.recipe,
        made.data,
        registered_model_name=registered,
        release=made.release,
        tracking_uri=tracking_uri,
        store=store,
        data_uri=data_place(subject) if store is None and made.data.digest == subject.data.digest else None,
        tags=tags,
    )
    return registered, info


def command(subject: Subject, point: Point, out: str, tracking_uri: str | None = None) -> str:
    """Return the command line that applies a candidate; it names the store where other data have to be kept.

    The place is the one that whoever logged the version chose. It is shown and not taken: people's data go nowhere that
    only a recipe names.
    """
    words = ["privgate", "apply", str(point.number), "--out", out]
    if point.change.kind == "pretrained":
        words += ["--public", "FILE.npz"]
    where = data_place(subject)
    if where is not None and point.data != subject.data.digest:
        words += ["--store", where.rstrip("/").rpartition("/")[0]]
    return typed(words, tracking_uri)


def typed(words: Sequence[str], tracking_uri: str | None = None) -> str:
    """Return a command line that a shell takes as these words, on one line; a registry that was named is named again.

    A word that cannot be shown on one line is left for whoever types it.
    """
    words = [*words, *(("--tracking-uri", tracking_uri) if tracking_uri else ())]
    return " ".join(shlex.quote(w) if w.isprintable() else "…" for w in words)


def changed_policy(advice: Advice) -> str:
    """Return that the policy is no longer the one that candidates were measured by; empty where it is.

    The gate judges by the policy of the day; nothing depends on this but what a reader expects.
    """
    try:
        found = Policy.load(advice.policy)
    except PrivgateError:
        return f"the policy {advice.policy} is not found here: whether it has changed since is not known"
    if found.digest == advice.policy_digest:
        return ""
    return f"the policy {advice.policy} has changed since these changes were measured: the next check may differ"
