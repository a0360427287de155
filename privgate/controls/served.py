"""What MLflow serves, beside what is declared: numbers about a release that nobody gets say nothing.

An honest model says the same about a record whoever stands beside it. So it is asked one record at a time,
in batches, in other containers and number types; and it must refuse what the declared domain rules out.
"""

import contextlib
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.controls import reproduces
from privgate.controls.client_answers import WAYS, WHOLE, can_send
from privgate.evidence import Count, Precondition
from privgate.families import listed
from privgate.subject.accepted_questions import AcceptedQuestions
from privgate.subject.containers import stack, take
from privgate.subject.release import Laplace, Noise, Release
from privgate.subject.released import admissible
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

#: records that the served model is asked about; of either side, and of other questions, those asked in every way
ASKED, FEW = 10_000, 32
#: relative; what single precision and another order of additions take from a number, and nothing else does
SAME = 1e-6
#: the same for answers in single precision, where sums over batches of another size differ by more
SINGLE = 1e-4
#: how often more each record is asked where noise is declared, and the level at which it counts as other noise
TIMES, NOISE_LEVEL = 3, 1e-4
#: questions outside of the declared domain that are put to a model at most
MOST_OUTSIDE = 128
#: what is called in a worker, by name
_OUTSIDE = "privgate.controls.served:ask_outside"
#: steps that can succeed, also for a model that ``privgate.log_model`` has logged
DECLARE = "declare what is served: privgate adopt --release, or Release(…) for log_model and log_recipe"
NOISE = f"log the model by privgate.log_model, which adds the declared noise, or {DECLARE}"
OWN = "let Recipe(predict=…) return what the served predict returns, or leave it out"
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
THRESHOLD = (
    "labels of the served predict are not always the likeliest (a threshold other than one half gives such): release "
    "probabilities, or give Recipe(predict=…) whose likeliest label is the one of predict"
)

# What the served model answers beside what is declared.


def check_served(subject: Subject, fleet: Fleet) -> list[Precondition]:
    """Return whether MLflow serves what is declared; nothing for a subject without a stored model.

    The registered version is asked by MLflow's own interface (``mlflow.pyfunc``) and by its native one about the same
    records, and at questions that are no record: the first must be the declared release of the second, in which way
    soever it is asked.
    """
    if subject.model is None:
        return []
    if not getattr(subject.model, "servable", False):
        text = "MLflow cannot serve this model (it has no python_function flavor): what is deployed must release"
        return [Precondition("served", "warned", f"{text} {describe(subject.release)}, which nobody has compared")]
    wide, rows, outside = _choose_rows(subject, fleet)
    if not len(rows):
        return [_doubt("the declared domain holds no record; widen it")]
    native, served = fleet.registered(wide, rows), fleet.registered(wide, rows, served=WHOLE)
    if problem := native.problem or served.problem:
        call = f"mend it until mlflow.pyfunc.load_model({subject.uri!r}).predict(X) gives each record one label or row"
        how = "" if "signature" in problem else f"; {PREDICT if native.problem else call}"
        return [_doubt(f"what MLflow serves could not be compared with the declared release: {problem}{how}")]
    if subject.task == "regression":
        return [_check_numbers(wide, fleet, rows, native.log_p[:, 0], served.log_p[:, 0])]
    return [_check_probabilities(subject, wide, fleet, rows, native.log_p, served.log_p, len(outside))]


def _check_probabilities(  # noqa: PLR0917  one comparison
    subject: Subject, wide: Subject, fleet: Fleet, rows: Index, native: Float, served: Float, outside: int
) -> Precondition:
    release, said = subject.release, describe(subject.release)
    wrong = ~admissible(served, native, release, SAME)
    detail: dict[str, Any] = {"records": len(rows) - outside, "different": int(wrong.sum())}
    detail |= {"declared": said, "questions": outside, "ways": 1}
    if wrong.any():
        kind, some = _describe_values(served, native), Count(int(wrong.sum()), len(rows))
        text = f"MLflow serves {kind}, and declared are {said} ({some} of {len(rows)} answers differ)"
        return _doubt(f"{text}; {_choose_step(kind, subject)}", detail)
    if why := _is_marked(subject, rows, native, served, WHOLE):
        return _doubt(why, detail)
    few = _choose_few(subject, rows, fleet)
    error = SINGLE if _in_single_precision(native) else SAME
    for way in _list_ways(wide, rows[few]):
        other = fleet.registered(wide, rows[few], served=way)
        if other.problem:
            continue  # what is refused hands out nothing
        detail["ways"] += 1
        if why := _is_marked(subject, rows[few], native[few], other.log_p, way):
            return _doubt(why, detail)
        if admissible(other.log_p, native[few], release, SAME).all():
            continue
        detail["ways_apart"] = error  # nats, for whoever limits changes of what is released
        if not admissible(other.log_p, native[few], release, error).all():
            text = f"MLflow serves {said} to who asks about all records at once, and something else to who asks {way}"
            return _doubt(f"{text}; {_choose_alike(subject, way)}", detail)
    text = f"MLflow serves what is declared, {said}, on {len(rows) - outside} records"
    return Precondition("served", "passed", text, detail)


def _check_numbers(subject: Subject, fleet: Fleet, rows: Index, native: Float, served: Float) -> Precondition:
    """Return whether a regressor's served numbers are its own, or its own with fresh noise of the declared kind."""
    noise, gap, said = subject.release.noise, served - native, describe(subject.release)
    detail = {"records": len(rows), "largest_difference": float(np.abs(gap).max()), "declared": said}
    if noise is None:
        close = SAME * np.maximum(1.0, np.abs(native))
        if wrong := int((np.abs(gap) > close).sum()):
            some = f"{Count(wrong, len(rows))} of {len(rows)}"
            return _doubt(f"MLflow serves other numbers than the model's own ({some} differ); {OWN}", detail)
        few = np.sort(reproduces.draw(subject, "few", fleet).permutation(len(rows))[:FEW])
        for way in _list_ways(subject, rows[few]):
            other = fleet.registered(subject, rows[few], served=way)
            if not other.problem and not (np.abs(other.log_p[:, 0] - native[few]) <= close[few]).all():
                text = f"MLflow serves the model's own numbers at once, and others to who asks {way}"
                return _doubt(f"{text}; {_choose_alike(subject, way)}", detail)
        return Precondition("served", "passed", f"MLflow serves the model's own numbers on {len(rows)} records", detail)
    # the same questions again: noise that is a function of the question hides nothing from who knows the function
    turned = rows[::-1].copy()
    again = [fleet.registered(subject, turned, served=WHOLE).log_p[::-1, 0] - native for _ in range(TIMES)]
    p = _test_noise(noise, np.concatenate([gap, *again]) * subject.scale[1])
    same = float(np.mean([gap == other for other in again]))
    detail |= {"p_of_the_declared_noise": p, "answered_the_same_twice": same}
    if p < NOISE_LEVEL or same > 0:
        why = "gives the same noise twice" if same > 0 else f"adds other noise than {said} (p = {p:.2g})"
        return _doubt(f"what MLflow serves {why}; {NOISE}", detail)
    text = f"MLflow serves what is declared, {said}, on {len(rows)} records asked {TIMES + 1} times"
    return Precondition("served", "passed", text, detail)


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


def _choose_rows(subject: Subject, fleet: Fleet) -> tuple[Subject, Index, Index]:
    """Return the subject with further questions, pool rows to ask about, and those of them that are no record."""
    size = subject.data.pool_size
    rows: Index = np.arange(size, dtype=np.int64)
    if size > ASKED:
        drawn = reproduces.draw(subject, "served", fleet)
        rows = np.sort(drawn.choice(size, ASKED, replace=False)).astype(np.int64)
    wide, outside = reproduces.ask_beyond(subject, fleet)
    rows = np.concatenate([rows, outside])
    if subject.accepted is not None:  # all else is refused
        rows = rows[subject.accepted.holds(wide.data.at(rows))]
        outside = outside[np.isin(outside, rows)]
    return wide, rows, outside


def _choose_few(subject: Subject, rows: Index, fleet: Fleet) -> Index:
    """Return positions in ``rows``: ``FEW`` each of training records, of candidates and of other questions."""
    rng = reproduces.draw(subject, "few", fleet)
    kind = np.digitize(rows, [subject.data.n, subject.data.pool_size])
    return np.sort(np.concatenate([rng.permutation(np.flatnonzero(kind == k))[:FEW] for k in range(3)]))


def _is_marked(subject: Subject, rows: Index, native: Float, served: Float, way: str) -> str:
    """Return that what lies between an answer and what is served for it tells members from candidates; empty if not."""
    people = rows < subject.data.pool_size
    if not subject.release.exact or native.shape != served.shape:
        return ""
    with np.errstate(divide="ignore"):
        auc = reproduces.tell_members(native[people], np.log(served[people]), rows[people] < subject.data.n)
    what = f"the model's own answer and what MLflow serves to who asks {way}"
    return reproduces.describe_mark(what, auc) if auc else ""


def _in_single_precision(log_p: Float) -> bool:
    """Return whether all probabilities are numbers of single precision, as those of networks are."""
    p = np.exp(log_p)
    return bool((np.abs(p.astype(np.float32) - p) <= 1e-12 * p).all())


def _list_ways(subject: Subject, rows: Index) -> list[str]:
    X = subject.data.at(rows)
    return [way for way in WAYS if can_send(X, way)]


def get_ways_apart(controls: list[Precondition]) -> float:
    """Return how many nats answers may differ in by the way in which the served model is asked."""
    return max((p.figure("ways_apart") or 0.0 for p in controls if p.name == "served"), default=0.0)


def _doubt(message: str, detail: dict[str, Any] | None = None) -> Precondition:
    return reproduces.doubt("served", message, detail)


# What is served and declared, in words, and the step that makes them one.


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
    ones: NDArray[np.bool_] = values == 1
    if bool(((values == 0) | ones).all() and (ones.sum(axis=1) == 1).all()):
        return "labels"
    return "exact probabilities" if admissible(values, log_p, Release(), SAME).all() else "other numbers"


def _choose_step(kind: str, subject: Subject) -> str:
    """Return what makes served and declared answers one, where the served ones are of this kind."""
    if kind == "exact probabilities":
        return "declare them: privgate adopt --release probabilities, or log_model and log_recipe without release="
    if kind != "labels":
        return DECLARE if "no probabilities" not in kind else "let the served predict return probabilities or labels"
    if subject.release.form == "label":
        return THRESHOLD
    by_hand = getattr(subject.model, "flavor", "") == "sklearn"
    return "declare them: privgate adopt --release label, or log_recipe(…, release=Release('label'))" + (
        "; or log the model with pyfunc_predict_fn='predict_proba'" if by_hand else ""
    )


def _choose_alike(subject: Subject, way: str) -> str:
    return EMPTY if way == "as an array" and hasattr(subject.data.X, "toarray") else ALIKE


# Whether the served model refuses what the declared domain rules out: a theorem about a domain speaks of no other.

_CHECKED: "weakref.WeakKeyDictionary[Subject, Subject]" = weakref.WeakKeyDictionary()


def check_domain(subject: Subject, fleet: Fleet) -> Subject:
    """Return the subject, which says what its stored model does with questions outside of the declared domain."""
    if subject.model is None or subject.data.domain is None:
        return subject
    if subject not in _CHECKED:
        domain = subject.data.domain
        inside = domain.queries is not None or bool(domain.holds(subject.data.pool()[0]).all())
        outside = "people in the data lie outside of it themselves"
        said = fleet.examined(subject, _OUTSIDE) if inside else {"problem": outside}
        why, count = str(said.get("problem", "")), said.get("asked")
        if not why and not (isinstance(count, int) and count > 0):
            why = "no question outside of it could be made up"
        if not why and said.get("answered") != 0:
            what = "".join(c for c in str(said.get("example")) if c.isprintable())[:80]
            why = f"the served model answers questions outside of the declared domain ({what}); {REFUSE}"
        elif why:
            why = f"whether the served model refuses what the declared domain rules out is not known: {why}"
        text = why or f"the served model refuses what the declared domain rules out: it answered none of {count} such"
        control = Precondition("domain_enforced", "warned" if why else "passed", text)
        detail = {**subject.detail, "preconditions": [*subject.detail.get("preconditions", ()), control]}
        _CHECKED[subject] = replace(subject, beyond=why, detail=detail)
    return _CHECKED[subject]


def ask_outside(opened: Any) -> dict[str, Any]:
    """Put questions outside of the domain to the stored model (workers only); return how many it answered.

    Each is one value just beyond an end, far beyond it, infinite, missing or of an unknown category, drawn anew in each
    run, alone or beside records.
    """
    rng, accepted = np.random.default_rng(), AcceptedQuestions(opened.domain)
    odd = [(what, X) for what, X in listed.odd(opened.domain, opened.X, rng) if not accepted.holds(X).any()]
    odd = [odd[k] for k in rng.permutation(len(odd))[:MOST_OUTSIDE]]
    inside, listing = np.flatnonzero(accepted.holds(opened.X))[:1], opened.domain.get("queries")
    if not (len(inside) or listing):
        return {"problem": "no record of the data lies inside of it"}
    known = take(opened.X, inside) if listing is None else listed.made_like(np.array(listing[:1]), opened.X)
    control, *answered = opened.stored.answering([known, *(_put_among(opened, X, rng) for _, X in odd)])
    if not control:
        return {"problem": "the served model did not answer about a record inside of it either"}
    first = next((what for (what, _), yes in zip(odd, answered, strict=True) if yes), "")
    return {"asked": len(odd), "answered": sum(answered), "example": first}


def _put_among(opened: Any, X: Any, rng: Generator) -> Any:
    """Return a question alone, before or behind a record, or among many, as it falls."""
    for count, first in ((int(rng.choice([0, 0, 1, 150])), True), (int(rng.choice([0, 0, 1, 150])), False)):
        others = take(opened.X, rng.integers(opened.n, size=count))
        with contextlib.suppress(TypeError, ValueError):  # types that no table holds together
            X = X if not count else stack(others, X) if first else stack(X, others)
    return X
