"""What MLflow serves must be what is declared: numbers about a release that nobody gets say nothing.

The gate asks the served model about records in the containers that a client may send, all at once and a few. The model
must refuse questions outside the declared domain.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Bool, Float, Index
from privgate.controls import reproduces
from privgate.controls.odd_questions import make_odd_questions
from privgate.errors import SubjectError
from privgate.evidence import Count, Precondition
from privgate.subject.accepted_questions import AcceptedQuestions, is_double
from privgate.subject.containers import length, stack, take
from privgate.subject.release import Laplace, Noise, Release, admissible
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

#: records that the served model is asked about at once at most
MOST_ASKED = 10_000
#: of members, of candidates and of questions, those that are asked about in each of ``WAYS``
FEW = 32
#: relative; served answers may differ by so much from the model's own: single precision and another order of additions
TOLERANCE = 1e-6
#: the same for answers in single precision, where sums over batches of another size differ by more
SINGLE_TOLERANCE = 1e-4
#: how often more each record is asked where noise is declared, and the p-value below which it counts as other noise
REPEATS, NOISE_LEVEL = 3, 1e-4
#: questions outside of the declared domain that are put to a model at most
MOST_OUTSIDE = 128
#: the way of asking about all records at once, in the container that training had
WHOLE = "at once"
_doubt, _pass = (partial(Precondition, "served", outcome) for outcome in ("inconclusive", "passed"))
_DECLARE = "declare what is served: privgate adopt --release, or Release(…) for log_model and log_recipe"
#: advice where few records get other answers than all at once
_ANSWER_ALIKE = (
    "let predict (Recipe(predict=…) for log_model, or your PythonModel's own) answer each record by itself, and turn "
    "whatever container and number type it is sent into the one that training had"
)
_FILL_EMPTY = (
    "an empty place of a sparse row is 0 in an array, and this model takes the two for different values (boosted trees "
    "take an empty place for missing): train on X.toarray(), or let predict=… turn arrays into sparse rows"
)
#: kind of the served values -> advice
_ADVICE = {
    "exact probabilities": "declare them: privgate adopt --release probabilities, or log_model and log_recipe without "
    "release=",
    "numbers that are no probabilities": "let the served predict return probabilities or labels",
    "labels": "declare them: privgate adopt --release label, or log_recipe(…, release=Release('label')); or have "
    "MLflow serve probabilities: privgate adopt --serve probabilities, or log_recipe(…, serve='probabilities')",
    "other labels": "labels of the served predict are not always the likeliest (a threshold other than one half gives "
    "such): release probabilities, or give Recipe(predict=…) whose likeliest label is the one of predict",
    "other numbers": _DECLARE,
}


def check_served(subject: Subject, fleet: Fleet) -> list[Precondition]:
    """Check that MLflow serves what is declared; return nothing for a subject without a stored model.

    The gate asks the registered version by ``mlflow.pyfunc`` and by its library's own interface, about records and
    questions that are no record. Answers of the first must be the declared release of the second's.
    """
    if subject.model is None:
        return []
    if not getattr(subject.model, "servable", False):
        text = "MLflow cannot serve this model (it has no python_function flavor): what is deployed must release"
        return [
            Precondition("served", "warned", f"{text} {describe_release(subject.release)}, which nobody has compared")
        ]
    wide, rows, questions = _choose_rows(subject, fleet)
    if not len(rows):
        return [_doubt("the declared domain holds no record; widen it")]
    native, served = fleet.registered(wide, rows), fleet.registered(wide, rows, served=WHOLE)
    if problem := native.problem or served.problem:
        step = f"mend it until mlflow.pyfunc.load_model({subject.uri!r}).predict(X) gives each record one label or row"
        if native.problem:
            step = "give Recipe(predict=…) that gets one column a label from it, or one number with task='regression'"
        if any(b"set_config" in text for text in subject.recipe.snapshot.values()):
            step = "MLflow serves without the script's sklearn.set_config: use set_output() of the steps, or none of it"
        step = "" if "signature" in problem else f"; {step}"
        return [_doubt(f"what MLflow serves could not be compared with the declared release: {problem}{step}")]
    if (noise := subject.release.noise) is not None:
        return [_check_noise(wide, noise, fleet, rows, native.log_p[:, 0], served.log_p[:, 0])]
    return [_compare(wide, fleet, rows, native.log_p, served.log_p, questions)]


def _compare(  # noqa: PLR0917  one comparison
    subject: Subject, fleet: Fleet, rows: Index, native: Float, served: Float, questions: int
) -> Precondition:
    """Check that answers are the declared release of the model's own, about all rows, and about a few in each way."""
    regression, loose = subject.task == "regression", TOLERANCE
    promise = "the model's own numbers" if regression else describe_release(subject.release)
    if not regression:
        p = np.exp(native)
        in_single = (np.abs(p.astype(np.float32) - p) <= 1e-12 * p).all()  # networks answer in single precision
        loose = SINGLE_TOLERANCE if in_single else TOLERANCE

    def differ(answers: Float, own: Float, error: float) -> Bool:
        if regression:
            return ~(np.abs(answers - own) <= error * np.maximum(1.0, np.abs(own)))[:, 0]
        return ~admissible(answers, own, subject.release, error)

    wrong, total = int(differ(served, native, TOLERANCE).sum()), len(rows)
    detail: dict[str, Any] = {"records": total - questions, "different": wrong, "declared": promise}
    detail |= {"questions": questions, "ways": 1}
    if wrong and regression:
        text = f"MLflow serves other numbers than the model's own ({Count(wrong, total)} of {total} differ)"
        return _doubt(f"{text}; let Recipe(predict=…) return what the served predict returns, or leave it out", detail)
    if wrong:
        kind = _describe_values(served, native)
        step = _ADVICE["other labels" if kind == "labels" and subject.release.form == "label" else kind]
        text = f"MLflow serves {kind}, and declared are {promise} ({Count(wrong, total)} of {total} answers differ)"
        return _doubt(f"{text}; {step}", detail)
    few = _draw_few(subject, fleet, rows, questions)
    X = subject.data.at(rows[few])
    # only what a way can hold is sent: a sandbox in which something failed is not used again
    for way in (w for w, convert in WAYS.items() if (_is_table(X) if convert is _to_frame else convert(X) is not None)):
        other = fleet.registered(subject, rows[few], served=way)
        if other.problem:
            continue  # a refusal releases nothing
        detail["ways"] += 1
        if differ(other.log_p, native[few], loose).any():
            step = _FILL_EMPTY if way == "as an array" and hasattr(subject.data.X, "toarray") else _ANSWER_ALIKE
            text = (
                f"MLflow serves {promise} to who asks about all records at once, and something else to who asks {way}"
            )
            return _doubt(f"{text}; {step}", detail)
        if differ(other.log_p, native[few], TOLERANCE).any():
            detail["ways_apart"] = loose  # nats, which limits of what is released add
    return _pass(f"MLflow serves what is declared, {promise}, on {total - questions} records", detail)


def _draw_few(subject: Subject, fleet: Fleet, rows: Index, questions: int) -> Index:
    generator, side = reproduces.make_generator(subject, "few", fleet), np.digitize(rows, [subject.data.n])
    side[len(rows) - questions :] = 2
    return np.sort(np.concatenate([generator.permutation(np.flatnonzero(side == k))[:FEW] for k in range(3)]))


def _check_noise(  # noqa: PLR0917  one comparison
    subject: Subject, noise: Noise, fleet: Fleet, rows: Index, native: Float, served: Float
) -> Precondition:
    promise, added = describe_release(subject.release), served - native
    # the same questions in another order: whoever knows noise that is a function of the question can subtract it
    turned = rows[::-1].copy()
    again = [fleet.registered(subject, turned, served=WHOLE).log_p[::-1, 0] - native for _ in range(REPEATS)]
    p = _test_noise(noise, np.concatenate([added, *again]) * subject.scale[1])
    same = float(np.mean([added == other for other in again]))
    detail = {"records": len(rows), "largest_difference": float(np.abs(added).max()), "declared": promise}
    detail |= {"p_of_the_declared_noise": p, "answered_the_same_twice": same}
    if p < NOISE_LEVEL or same > 0:
        why = "gives the same noise twice" if same > 0 else f"adds other noise than {promise} (p = {p:.2g})"
        step = f"log the model by privgate.log_model, which adds the declared noise, or {_DECLARE}"
        return _doubt(f"what MLflow serves {why}; {step}", detail)
    return _pass(f"MLflow serves what is declared, {promise}, on {len(rows)} records asked {REPEATS + 1} times", detail)


def _test_noise(noise: Noise, values: Float) -> float:
    """Return the p-value of values being the declared noise, by their size and by their shape (Kolmogorov-Smirnov)."""
    from scipy.stats import chi2, gamma, kstest

    if isinstance(noise, Laplace):  # sum |z| / scale is Gamma(n, 1)
        below = gamma.cdf(np.abs(values).sum() / noise.scale, len(values))
    else:  # sum z^2 / scale^2 of normal noise is chi-square with n degrees of freedom
        below = chi2.cdf((values**2).sum() / noise.scale**2, len(values))
    shape = float(kstest(values / noise.scale, noise.laws[1]).pvalue)
    return float(min(1.0, 2 * min(2 * min(below, 1 - below), shape)))


def _choose_rows(subject: Subject, fleet: Fleet) -> tuple[Subject, Index, int]:
    """Return the subject with added questions, the pool rows to ask about, and how many of the rows are questions."""
    size, rng = subject.data.pool_size, reproduces.make_generator(subject, "served", fleet)
    wide, questions = reproduces.add_questions(subject, fleet)
    rows = np.concatenate([np.sort(rng.permutation(size)[:MOST_ASKED]), questions])
    if subject.accepted is not None:  # the model refuses all other rows
        rows = rows[subject.accepted.holds(wide.data.at(rows))]
    return wide, rows, int((rows >= size).sum())


def describe_release(release: Release) -> str:
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
    if isinstance(release.floor, tuple):
        text = f"{text.removeprefix('exact ')} of {min(release.floor):.3g} or more"
    return text if release.temperature == 1 else f"{text} at temperature {release.temperature:g}"


def _describe_values(values: Float, log_p: Float) -> str:
    if not ((values >= 0).all() and (values <= 1 + 1e-9).all()):
        return "numbers that are no probabilities"
    if bool(((values == 0) | (values == 1)).all() and (values.sum(axis=1) == 1).all()):
        return "labels"
    return "exact probabilities" if admissible(values, log_p, Release(), TOLERANCE).all() else "other numbers"


@lru_cache(maxsize=4)
def check_domain(subject: Subject, fleet: Fleet) -> Subject:
    """Return the subject with a finding: whether its model refuses questions outside its certificates' domain."""
    if subject.model is None or subject.data.domain is None:
        return subject
    domain = subject.data.domain
    result: dict[str, Any] = {"problem": "people in the data lie outside of it themselves"}
    if domain.holds(subject.data.pool()[0]).all():
        result = fleet.examined(subject, "privgate.controls.served:ask_outside")
    why, example = "", "".join(c for c in str(result.get("example")) if c.isprintable())[:80]
    if problem := result.get("problem", ""):
        why = f"whether the served model refuses what the declared domain rules out is not known: {problem}"
    elif result.get("answered") != 0:
        why = f"the served model answers questions outside of the declared domain ({example}); log it by "
        why += "privgate.log_model, which has it refuse all others, or have it refuse them itself"
    text = "the served model refuses what the declared domain rules out: it answered none of "
    text += f"{result.get('asked')} such"
    control = Precondition("domain_enforced", "warned" if why else "passed", why or text)
    detail = {**subject.detail, "preconditions": [*subject.detail.get("preconditions", ()), control]}
    detail["answers_single"] = bool(result.get("single"))
    return replace(subject, beyond=why, detail=detail)


def ask_outside(opened: Any) -> dict[str, Any]:
    """Ask the stored model in a worker questions outside of the domain; return how many it answered."""
    rng, accepted = np.random.default_rng(), AcceptedQuestions(opened.domain)
    outside = [(what, X) for what, X in make_odd_questions(opened.domain, opened.X, rng) if not accepted.holds(X).any()]
    outside = [outside[k] for k in rng.permutation(len(outside))[:MOST_OUTSIDE]]
    if not len(inside := np.flatnonzero(accepted.holds(opened.X))[:1]):
        return {"problem": "no record of the data lies inside of it"}
    if not outside:
        return {"problem": "no question outside of it could be made up"}
    known, single = take(opened.X, inside), list[Any]()
    if is_double(known):
        with contextlib.suppress(TypeError, ValueError):  # frames of texts alone
            kinds = dict.fromkeys(known.select_dtypes(np.float64), np.float32) if hasattr(known, "iloc") else np.float32
            single = [known.astype(kinds)]
    odd = [*(_put_behind(known, X) for _, X in outside), *single]
    answers_known, *answered = opened.stored.answering([known, *odd])
    answers_single = bool(single and answered.pop())
    if not answers_known:
        return {"problem": "the served model did not answer about a record inside of it either"}
    first = next((what for (what, _), yes in zip(outside, answered, strict=True) if yes), "")
    return {"asked": len(outside), "answered": sum(answered), "example": first, "single": answers_single}


def _put_behind(known: Any, X: Any) -> Any:
    with contextlib.suppress(TypeError, ValueError):  # no table holds both types
        return stack(known, X)
    return X


def _to_array(X: Any) -> Any:
    if hasattr(X, "toarray"):
        return X.toarray()
    kinds = {getattr(dtype, "kind", "O") for dtype in X.dtypes} if hasattr(X, "columns") else set()
    return X.to_numpy() if len(kinds) == 1 and kinds <= set("biuf") else None


def _is_table(X: Any) -> bool:
    return isinstance(X, np.ndarray) and X.ndim == 2


def _to_frame(X: Any) -> Any:
    import pandas as pd

    return pd.DataFrame(X) if _is_table(X) else None


#: way of asking about a few records -> conversion of their container; None where that container cannot hold them
WAYS: dict[str, Callable[[Any], Any]] = {"about a few": lambda X: X, "as an array": _to_array, "as a frame": _to_frame}


def ask_served(opened: Any, X: Any, way: str) -> Float:
    """Return the served model's answers about n records in a worker: a value for each label, or one number each."""
    (answer,) = opened.stored.serve([X if way == WHOLE else WAYS[way](X)], again=way == WHOLE)
    if opened.recipe.task == "regression":
        return _read_numbers(answer, length(X))
    return _read_label_values(answer, opened.classes, length(X))


def _read_label_values(answer: Any, classes: NDArray[Any], n: int) -> Float:
    """Return what ``predict`` answered about n records as a value for each sorted label, shape (n, K).

    That is a label, the probability of the second of two classes, a mapping from labels, or one column a class.
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


def _read_numbers(answer: Any, n: int) -> Float:
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
