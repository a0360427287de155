"""What MLflow serves, beside what is declared: numbers about a release that nobody gets say nothing.

The served model is asked about records as training had them, all and a few, as an array and as a frame. It must
refuse what the declared domain rules out.
"""

import contextlib
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Bool, Float, Index
from privgate.controls import reproduces
from privgate.errors import SubjectError
from privgate.evidence import Count, Precondition
from privgate.families import listed
from privgate.subject.accepted_questions import AcceptedQuestions
from privgate.subject.containers import length, stack, take
from privgate.subject.release import Laplace, Noise, Release
from privgate.subject.released import admissible
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

#: records that the served model is asked about; of either side, and of other questions, those asked otherwise
ASKED, FEW = 10_000, 32
#: relative; what single precision and another order of additions take from a number, and nothing else does
SAME = 1e-6
#: the same for answers in single precision, where sums over batches of another size differ by more
SINGLE = 1e-4
#: how often more each record is asked where noise is declared, and the level at which it counts as other noise
TIMES, NOISE_LEVEL = 3, 1e-4
#: questions outside of the declared domain that are put to a model at most
MOST_OUTSIDE = 128
#: all records as training had them: what everything else is compared with
WHOLE = "at once"
_doubt, _pass = (partial(Precondition, "served", outcome) for outcome in ("inconclusive", "passed"))
#: steps that can succeed, also for a model that ``privgate.log_model`` has logged
DECLARE = "declare what is served: privgate adopt --release, or Release(…) for log_model and log_recipe"
NOISE = f"log the model by privgate.log_model, which adds the declared noise, or {DECLARE}"
PREDICT = "give Recipe(predict=…) that gets one column a label from it, or one number with task='regression'"
REFUSE = "log it by privgate.log_model, which has it refuse all others, or have it refuse them itself"
ALIKE = (
    "let predict (Recipe(predict=…) for log_model, or your PythonModel's own) answer each record by itself, and turn "
    "whatever container and number type it is sent into the one that training had"
)
EMPTY = (
    "an empty place of a sparse row is 0 in an array, and this model takes the two for different values (boosted trees "
    "take an empty place for missing): train on X.toarray(), or let predict=… turn arrays into sparse rows"
)
#: what is served -> the step
_STEPS = {
    "exact probabilities": "declare them: privgate adopt --release probabilities, or log_model and log_recipe without "
    "release=",
    "numbers that are no probabilities": "let the served predict return probabilities or labels",
    "labels": "declare them: privgate adopt --release label, or log_recipe(…, release=Release('label'))",
    "other labels": "labels of the served predict are not always the likeliest (a threshold other than one half gives "
    "such): release probabilities, or give Recipe(predict=…) whose likeliest label is the one of predict",
    "other numbers": DECLARE,
}


def check_served(subject: Subject, fleet: Fleet) -> list[Precondition]:
    """Return whether MLflow serves what is declared; nothing for a subject without a stored model.

    The registered version is asked by MLflow's own interface (``mlflow.pyfunc``) and by its native one about the same
    records, and at questions that are no record: the first must be the declared release of the second.
    """
    if subject.model is None:
        return []
    if not getattr(subject.model, "servable", False):
        text = "MLflow cannot serve this model (it has no python_function flavor): what is deployed must release"
        return [Precondition("served", "warned", f"{text} {describe(subject.release)}, which nobody has compared")]
    wide, rows, questions = _choose_rows(subject, fleet)
    if not len(rows):
        return [_doubt("the declared domain holds no record; widen it")]
    native, served = fleet.registered(wide, rows), fleet.registered(wide, rows, served=WHOLE)
    if problem := native.problem or served.problem:
        call = f"mend it until mlflow.pyfunc.load_model({subject.uri!r}).predict(X) gives each record one label or row"
        how = "" if "signature" in problem else f"; {PREDICT if native.problem else call}"
        return [_doubt(f"what MLflow serves could not be compared with the declared release: {problem}{how}")]
    if (noise := subject.release.noise) is not None:
        return [_check_noise(wide, noise, fleet, rows, native.log_p[:, 0], served.log_p[:, 0])]
    return [_compare(wide, fleet, rows, native.log_p, served.log_p, questions)]


def _compare(  # noqa: PLR0917  one comparison
    subject: Subject, fleet: Fleet, rows: Index, native: Float, served: Float, questions: int
) -> Precondition:
    """Return whether answers without noise are the declared release of the model's own, in each container."""
    number, loose = subject.task == "regression", SAME
    said = "the model's own numbers" if number else describe(subject.release)
    if not number:
        p = np.exp(native)  # of networks, all are numbers of single precision
        loose = SINGLE if (np.abs(p.astype(np.float32) - p) <= 1e-12 * p).all() else SAME

    def differ(answers: Float, own: Float, error: float) -> Bool:
        if number:
            return ~(np.abs(answers - own) <= error * np.maximum(1.0, np.abs(own)))[:, 0]
        return ~admissible(answers, own, subject.release, error)

    wrong, total = int(differ(served, native, SAME).sum()), len(rows)
    detail: dict[str, Any] = {"records": total - questions, "different": wrong, "declared": said}
    detail |= {"questions": questions, "ways": 1}
    if wrong and number:
        text = f"MLflow serves other numbers than the model's own ({Count(wrong, total)} of {total} differ)"
        return _doubt(f"{text}; let Recipe(predict=…) return what the served predict returns, or leave it out", detail)
    if wrong:
        kind = _describe_values(served, native)
        step = _STEPS["other labels" if kind == "labels" and subject.release.form == "label" else kind]
        if step == _STEPS["labels"] and getattr(subject.model, "flavor", "") == "sklearn":
            step += "; or log the model with pyfunc_predict_fn='predict_proba'"
        text = f"MLflow serves {kind}, and declared are {said} ({Count(wrong, total)} of {total} answers differ)"
        return _doubt(f"{text}; {step}", detail)
    drawn, side = reproduces.draw(subject, "few", fleet), np.digitize(rows, [subject.data.n])
    side[total - questions :] = 2
    few = np.sort(np.concatenate([drawn.permutation(np.flatnonzero(side == k))[:FEW] for k in range(3)]))
    X = subject.data.at(rows[few])
    # a sandbox in which something failed is not used again, so that nothing is sent that cannot be
    for way in (w for w, convert in WAYS.items() if convert(X) is not None):
        other = fleet.registered(subject, rows[few], served=way)
        if other.problem:
            continue  # what is refused hands out nothing
        detail["ways"] += 1
        if differ(other.log_p, native[few], loose).any():
            step = EMPTY if way == "as an array" and hasattr(subject.data.X, "toarray") else ALIKE
            text = f"MLflow serves {said} to who asks about all records at once, and something else to who asks {way}"
            return _doubt(f"{text}; {step}", detail)
        if differ(other.log_p, native[few], SAME).any():
            detail["ways_apart"] = loose  # nats, for whoever limits changes of what is released
    return _pass(f"MLflow serves what is declared, {said}, on {total - questions} records", detail)


def _check_noise(  # noqa: PLR0917
    subject: Subject, noise: Noise, fleet: Fleet, rows: Index, native: Float, served: Float
) -> Precondition:
    """Return whether a regressor's served numbers are its own with fresh noise of the declared kind."""
    said, gap = describe(subject.release), served - native
    # the same questions again: noise that is a function of the question hides nothing from who knows the function
    turned = rows[::-1].copy()
    again = [fleet.registered(subject, turned, served=WHOLE).log_p[::-1, 0] - native for _ in range(TIMES)]
    p = _test_noise(noise, np.concatenate([gap, *again]) * subject.scale[1])
    same = float(np.mean([gap == other for other in again]))
    detail = {"records": len(rows), "largest_difference": float(np.abs(gap).max()), "declared": said}
    detail |= {"p_of_the_declared_noise": p, "answered_the_same_twice": same}
    if p < NOISE_LEVEL or same > 0:
        why = "gives the same noise twice" if same > 0 else f"adds other noise than {said} (p = {p:.2g})"
        return _doubt(f"what MLflow serves {why}; {NOISE}", detail)
    return _pass(f"MLflow serves what is declared, {said}, on {len(rows)} records asked {TIMES + 1} times", detail)


def _test_noise(noise: Noise, seen: Float) -> float:
    """Return the probability of noise so far from the declared kind, in shape or in size, both ways; at most 1.

    Shape by Kolmogorov and Smirnov; size exactly: ``sum |z| / b`` of Laplace noise is Gamma(n, 1), ``sum z^2 / s^2`` of
    normal noise chi-square with n degrees of freedom.
    """
    from scipy.stats import chi2, gamma, kstest

    if isinstance(noise, Laplace):
        below = gamma.cdf(np.abs(seen).sum() / noise.scale, len(seen))
    else:
        below = chi2.cdf((seen**2).sum() / noise.scale**2, len(seen))
    shape = float(kstest(noise.below(seen), "uniform").pvalue)
    return float(min(1.0, 2 * min(2 * min(below, 1 - below), shape)))


def _choose_rows(subject: Subject, fleet: Fleet) -> tuple[Subject, Index, int]:
    """Return the subject with further questions, pool rows to ask about, and how many of them are no record."""
    size = subject.data.pool_size
    rows: Index = np.arange(size, dtype=np.int64)
    if size > ASKED:
        rows = np.sort(reproduces.draw(subject, "served", fleet).choice(rows, ASKED, replace=False))
    wide, questions = reproduces.ask_beyond(subject, fleet)
    rows = np.concatenate([rows, questions])
    if subject.accepted is not None:  # all else is refused
        rows = rows[subject.accepted.holds(wide.data.at(rows))]
    return wide, rows, int((rows >= size).sum())


def get_ways_apart(controls: list[Precondition]) -> float:
    """Return how many nats answers may differ in by the way in which the served model is asked."""
    return max((p.figure("ways_apart") or 0.0 for p in controls if p.name == "served"), default=0.0)


def describe(release: Release) -> str:
    """Return what a release hands out, in words."""
    if release.noise is not None:
        return f"numbers with {type(release.noise).__name__} noise of scale {release.noise.scale:g}"
    few = f"probabilities of the {release.k} likeliest labels" if release.k > 1 else "the likeliest label's probability"
    text = {
        "probabilities": "probabilities" if release.temperature != 1 else "exact probabilities",
        "rounded": f"probabilities rounded to {release.step:g}",
        "binned": f"centres of bins of width {release.step:g}",
        "top_k": few,
        "label": "labels alone",
    }[release.form]
    return text if release.temperature == 1 else f"{text} at temperature {release.temperature:g}"


def _describe_values(values: Float, log_p: Float) -> str:
    if not ((values >= 0).all() and (values <= 1 + 1e-9).all()):
        return "numbers that are no probabilities"
    if bool(((values == 0) | (values == 1)).all() and (values.sum(axis=1) == 1).all()):
        return "labels"
    return "exact probabilities" if admissible(values, log_p, Release(), SAME).all() else "other numbers"


_CHECKED: "weakref.WeakKeyDictionary[Subject, Subject]" = weakref.WeakKeyDictionary()


def check_domain(subject: Subject, fleet: Fleet) -> Subject:
    """Return the subject, which says what its stored model does with questions outside of the declared domain.

    A theorem about a domain speaks of no other questions.
    """
    if subject.model is None or subject.data.domain is None:
        return subject
    if subject not in _CHECKED:
        domain = subject.data.domain
        seen: dict[str, Any] = {"problem": "people in the data lie outside of it themselves"}
        if domain.queries is not None or domain.holds(subject.data.pool()[0]).all():
            seen = fleet.examined(subject, "privgate.controls.served:ask_outside")
        why, what = "", "".join(c for c in str(seen.get("example")) if c.isprintable())[:80]
        if problem := seen.get("problem", ""):
            why = f"whether the served model refuses what the declared domain rules out is not known: {problem}"
        elif seen.get("answered") != 0:
            why = f"the served model answers questions outside of the declared domain ({what}); {REFUSE}"
        text = "the served model refuses what the declared domain rules out: it answered none of "
        text += f"{seen.get('asked')} such"
        control = Precondition("domain_enforced", "warned" if why else "passed", why or text)
        detail = {**subject.detail, "preconditions": [*subject.detail.get("preconditions", ()), control]}
        _CHECKED[subject] = replace(subject, beyond=why, detail=detail)
    return _CHECKED[subject]


def ask_outside(opened: Any) -> dict[str, Any]:
    """Put questions outside of the domain to the stored model (workers only); return how many it answered.

    Each is one value just beyond an end, far beyond it, infinite, missing or of an unknown category, behind a record.
    """
    rng, accepted = np.random.default_rng(), AcceptedQuestions(opened.domain)
    odd = [(what, X) for what, X in listed.odd(opened.domain, opened.X, rng) if not accepted.holds(X).any()]
    odd = [odd[k] for k in rng.permutation(len(odd))[:MOST_OUTSIDE]]
    inside, listing = np.flatnonzero(accepted.holds(opened.X))[:1], opened.domain.get("queries")
    if not (len(inside) or listing):
        return {"problem": "no record of the data lies inside of it"}
    if not odd:
        return {"problem": "no question outside of it could be made up"}
    known = take(opened.X, inside) if listing is None else listed.made_like(np.array(listing[:1]), opened.X)
    control, *answered = opened.stored.answering([known, *(_put_behind(known, X) for _, X in odd)])
    if not control:
        return {"problem": "the served model did not answer about a record inside of it either"}
    first = next((what for (what, _), yes in zip(odd, answered, strict=True) if yes), "")
    return {"asked": len(odd), "answered": sum(answered), "example": first}


def _put_behind(known: Any, X: Any) -> Any:
    with contextlib.suppress(TypeError, ValueError):  # types that no table holds together
        return stack(known, X)
    return X


def _to_array(X: Any) -> Any:
    """Return a table of one number type as an array, a sparse one as a dense one; None for anything else."""
    if hasattr(X, "toarray"):
        return X.toarray()
    kinds = {getattr(dtype, "kind", "O") for dtype in X.dtypes} if hasattr(X, "columns") else set()
    return X.to_numpy() if len(kinds) == 1 and kinds <= set("biuf") else None


def _to_frame(X: Any) -> Any:
    import pandas as pd

    return pd.DataFrame(X) if isinstance(X, np.ndarray) and X.ndim == 2 else None


#: how a few records are asked about -> the container; None where it cannot hold them
WAYS: dict[str, Callable[[Any], Any]] = {"about a few": lambda X: X, "as an array": _to_array, "as a frame": _to_frame}


def ask(opened: Any, X: Any, way: str) -> Float:
    """Return what the served model of an opened payload answers about n records (workers only), as ``read`` does.

    One number a record of a regressor, shape (n, 1).
    """
    (answer,) = opened.stored.serve([X if way == WHOLE else WAYS[way](X)])
    if opened.recipe.task == "regression":
        return read_numbers(answer, length(X))
    return read(answer, opened.classes, length(X))


def read(answer: Any, classes: NDArray[Any], n: int) -> Float:
    """Return the value that what ``predict`` returned for n records gives to each sorted label, shape (n, K).

    An array, frame, tensor or list: one label each; one column a class, in the order of the sorted labels or named by
    them; the probability of the second of two classes; or a mapping from labels to values each. A label is a 1 in its
    column; what is not listed is 0. Not necessarily probabilities.

    Raises
    ------
    SubjectError
        It is none of these, or holds NaN.
    """
    wanted, names = [str(c) for c in classes.tolist()], [str(c) for c in getattr(answer, "columns", ())]
    if isinstance(answer, list | tuple | np.ndarray) and len(answer) and all(isinstance(r, Mapping) for r in answer):
        tables = [{str(label): float(value) for label, value in row.items()} for row in answer]
        if not set().union(*tables) <= set(wanted):
            raise _refuse("a mapping that names something else than labels of the training data")
        answer = np.array([[table.get(c, 0.0) for c in wanted] for table in tables])
    values = _flatten(answer, n)
    if values.ndim == 1:
        values = _read_labels(values, classes)
    elif values.ndim == 2 and values.shape[1] == len(classes) and values.dtype.kind in "biuf":
        named = sorted(names) == sorted(wanted)
        values = values[:, [names.index(c) for c in wanted] if named else slice(None)].astype(np.float64)
    else:
        raise _refuse(f"an answer of shape {values.shape} and type {values.dtype}")
    if np.isnan(values).any():
        raise _refuse("NaN")
    return values


def read_numbers(answer: Any, n: int) -> Float:
    """Return the finite number that a served regressor answered for each of n records, shape (n, 1)."""
    values = _flatten(answer, n)
    if values.ndim > 1 or values.dtype.kind not in "biuf" or not np.isfinite(values).all():
        raise _refuse(f"an answer of shape {values.shape} and type {values.dtype} instead of {n} finite numbers")
    return values.astype(np.float64)[:, None]


def _flatten(answer: Any, n: int) -> NDArray[Any]:
    values = np.asarray(answer)
    if values.ndim == 0 or len(values) != n:
        raise _refuse(f"{len(values) if values.ndim else 1} answers to {n} records")
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _read_labels(values: NDArray[Any], classes: NDArray[Any]) -> Float:
    """Return labels as ones, or two columns from the probability of the second of two classes."""
    text = values.dtype.kind in "OUS" or classes.dtype.kind not in "biuf"
    known, table = (values.astype(str), classes.astype(str)) if text else (values, classes)
    same = known[:, None] == table
    if same.any(axis=1).all():
        return np.asarray(same, dtype=np.float64)
    if values.dtype.kind == "f" and len(classes) == 2:
        return np.column_stack([1.0 - values, values]).astype(np.float64)
    raise _refuse("values that are neither labels of the training data nor one column a label")


def _refuse(what: str) -> SubjectError:
    return SubjectError(f"the served model returned {what}, which cannot be compared with the declared release")
