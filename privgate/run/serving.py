"""What MLflow serves, beside what is declared: numbers about a release that nobody gets say nothing."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.evidence import Count, Precondition
from privgate.run import reproduction
from privgate.subject.release import Laplace, Noise, Release
from privgate.subject.released import admissible
from privgate.subject.subject import Subject
from privgate.training import asking
from privgate.training.fleet import Fleet

#: records that the served model is asked about; in a run that is to be signed nobody can know before which
ASKED = 10_000
#: of either side, and of the questions that nobody's record is, asked about in every way there is
FEW = 32
#: relative; what single precision and another order of additions take from a number, and nothing else does
SAME = 1e-6
#: the same for answers in single precision, where sums over batches of another size differ by more
SINGLE = 1e-4

#: how often more each record is asked where noise is declared
TIMES = 3
#: probability that served noise of the declared kind is taken for other noise
NOISE_LEVEL = 1e-4
#: steps that can succeed, also for a model that ``privgate.log_model`` has logged
DECLARE = "declare what is served: privgate adopt --release, or Release(…) for log_model and log_recipe"
NOISE = f"log the model by privgate.log_model, which adds the declared noise, or {DECLARE}"
OWN = "let Recipe(predict=…) return what the served predict returns, or leave it out"
PREDICT = "give Recipe(predict=…) that gets one column a label from it, or one number with task='regression'"
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


def preconditions(subject: Subject, fleet: Fleet) -> list[Precondition]:
    """Return whether MLflow serves what is declared; nothing for a subject without a stored model.

    The registered version is asked by MLflow's own interface (``mlflow.pyfunc``) and by its native one about the same
    records, and at questions that nobody's record is: the first must be the declared release of the second, in which
    way soever it is asked.
    """
    if subject.model is None:
        return []
    if not getattr(subject.model, "servable", False):
        text = "MLflow cannot serve this model (it has no python_function flavor): what is deployed must release"
        return [Precondition("served", "warned", f"{text} {words(subject.release)}, which nobody has compared")]
    wide, rows, out = _asked(subject, fleet)
    if not len(rows):
        return [Precondition("served", "inconclusive", "the declared domain holds no record; widen it")]
    native, served = fleet.registered(wide, rows), fleet.registered(wide, rows, served=asking.WHOLE)
    problem = native.problem or served.problem
    if problem:
        call = f"mend it until mlflow.pyfunc.load_model({subject.uri!r}).predict(X) gives each record one label or row"
        how = "" if "signature" in problem else f"; {PREDICT if native.problem else call}"
        text = f"what MLflow serves could not be compared with the declared release: {problem}{how}"
        return [Precondition("served", "inconclusive", text)]
    if subject.task == "regression":
        return [_numbers(wide, fleet, rows, native.log_p[:, 0], served.log_p[:, 0])]
    wrong = ~admissible(served.log_p, native.log_p, subject.release, SAME)
    detail: dict[str, Any] = {"records": len(rows) - len(out), "different": int(wrong.sum())}
    detail |= {"declared": words(subject.release), "questions": len(out), "ways": 1}
    if wrong.any():
        kind = _kind(served.log_p, native.log_p)
        what = f"MLflow serves {kind}, and declared are {words(subject.release)}"
        some = f"{Count(int(wrong.sum()), len(rows))} of {len(rows)} answers differ"
        text = f"{what} ({some}); {_step(kind, subject)}"
        return [Precondition("served", "inconclusive", text, detail)]
    if why := _marked(subject, rows, native.log_p, served.log_p, "at once"):
        return [Precondition("served", "inconclusive", why, detail)]
    few = _some(subject, rows, fleet)
    error = SINGLE if _in_single_precision(native.log_p) else SAME
    for way in _ways(wide, rows[few]):
        other = fleet.registered(wide, rows[few], served=way)
        if other.problem:
            continue  # what is refused hands out nothing
        detail["ways"] += 1
        if why := _marked(subject, rows[few], native.log_p[few], other.log_p, way):
            return [Precondition("served", "inconclusive", why, detail)]
        if admissible(other.log_p, native.log_p[few], subject.release, SAME).all():
            continue
        detail["ways_apart"] = error  # nats, for whoever bounds changes of what is released
        if not admissible(other.log_p, native.log_p[few], subject.release, error).all():
            text = (
                f"MLflow serves {words(subject.release)} to who asks about all records at once, and something else to "
                f"who asks {way}; {_alike(subject, way)}"
            )
            return [Precondition("served", "inconclusive", text, detail)]
    text = f"MLflow serves what is declared, {words(subject.release)}, on {len(rows) - len(out)} records"
    return [Precondition("served", "passed", text, detail)]


def _step(kind: str, subject: Subject) -> str:
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


def _alike(subject: Subject, way: str) -> str:
    """Return what makes answers the same in whichever way they are asked for."""
    return EMPTY if way == "as an array" and hasattr(subject.data.X, "toarray") else ALIKE


def _asked(subject: Subject, fleet: Fleet) -> tuple[Subject, Index, Index]:
    """Return the subject with further questions, pool rows to ask about, and those of them that are nobody's record."""
    size = subject.data.pool_size
    rows: Index = np.arange(size, dtype=np.int64)
    if size > ASKED:
        drawn = reproduction.drawn(subject, "served", fleet)
        rows = np.sort(drawn.choice(size, ASKED, replace=False)).astype(np.int64)
    wide, out = reproduction.asked(subject, fleet)
    rows = np.concatenate([rows, out])
    if subject.accepted is not None:  # all else is refused
        rows = rows[subject.accepted.holds(wide.data.at(rows))]
        out = out[np.isin(out, rows)]
    return wide, rows, out


def _some(subject: Subject, rows: Index, fleet: Fleet) -> Index:
    """Return positions in ``rows``: ``FEW`` each of training records, of candidates and of nobody's questions."""
    n, size = subject.data.n, subject.data.pool_size
    rng, kind = reproduction.drawn(subject, "few", fleet), np.digitize(rows, [n, size])
    return np.sort(np.concatenate([rng.permutation(np.flatnonzero(kind == k))[:FEW] for k in range(3)]))


def _marked(subject: Subject, rows: Index, native: Float, served: Float, way: str) -> str:
    """Return that what lies between an answer and what is served for it tells members from candidates; empty if not."""
    people = rows < subject.data.pool_size
    if not subject.release.exact or native.shape != served.shape:
        return ""
    with np.errstate(divide="ignore"):
        auc = reproduction.tells(native[people], np.log(served[people]), rows[people] < subject.data.n)
    return reproduction.sentence(f"the model's own answer and what MLflow serves to who asks {way}", auc) if auc else ""


def _ways(subject: Subject, rows: Index) -> list[str]:
    """Return the ways in which these records can be sent at all: asked otherwise, the model would be opened anew."""
    X = subject.data.at(rows)
    return [way for way in asking.WAYS if asking.possible(X, way)]


def apart(found: list[Precondition]) -> float:
    """Return how many nats answers may differ in by the way in which the served model is asked."""
    return max((p.figure("ways_apart") or 0.0 for p in found if p.name == "served"), default=0.0)


def _in_single_precision(log_p: Float) -> bool:
    """Return whether all probabilities are numbers of single precision, as those of networks are."""
    p = np.exp(log_p)
    return bool((np.abs(p.astype(np.float32) - p) <= 1e-12 * p).all())


def _otherwise(subject: Subject, fleet: Fleet, rows: Index, native: Float) -> str:
    """Return a way of asking in which a regressor's served numbers are not its own; empty if there is none."""
    few = np.sort(reproduction.drawn(subject, "few", fleet).permutation(len(rows))[:FEW])
    close = SAME * np.maximum(1.0, np.abs(native[few]))
    for way in _ways(subject, rows[few]):
        other = fleet.registered(subject, rows[few], served=way)
        if not other.problem and not (np.abs(other.log_p[:, 0] - native[few]) <= close).all():
            return way
    return ""


def _numbers(subject: Subject, fleet: Fleet, rows: Index, native: Float, served: Float) -> Precondition:
    """Return whether a regressor's served numbers are its own, or its own with fresh noise of the declared kind."""
    noise, deviation = subject.release.noise, subject.scale[1]
    gap = served - native
    detail = {"records": len(rows), "largest_difference": float(np.abs(gap).max()), "declared": words(subject.release)}
    if noise is None:
        wrong = int((np.abs(gap) > SAME * np.maximum(1.0, np.abs(native))).sum())
        if wrong:
            some = f"{Count(wrong, len(rows))} of {len(rows)}"
            text = f"MLflow serves other numbers than the model's own ({some} differ); {OWN}"
            return Precondition("served", "inconclusive", text, detail)
        if way := _otherwise(subject, fleet, rows, native):
            text = (
                f"MLflow serves the model's own numbers at once, and others to who asks {way}; {_alike(subject, way)}"
            )
            return Precondition("served", "inconclusive", text, detail)
        return Precondition("served", "passed", f"MLflow serves the model's own numbers on {len(rows)} records", detail)
    # the same questions again: noise that is a function of the question hides nothing from who knows the function
    turned = rows[::-1].copy()
    again = [fleet.registered(subject, turned, served=asking.WHOLE).log_p[::-1, 0] - native for _ in range(TIMES)]
    p = _chance(noise, np.concatenate([gap, *again]) * deviation)
    same = float(np.mean([gap == other for other in again]))
    detail |= {"p_of_the_declared_noise": p, "answered_the_same_twice": same}
    if p < NOISE_LEVEL or same > 0:
        why = (
            "gives the same noise twice"
            if same > 0
            else f"adds other noise than {words(subject.release)} (p = {p:.2g})"
        )
        return Precondition("served", "inconclusive", f"what MLflow serves {why}; {NOISE}", detail)
    text = f"MLflow serves what is declared, {words(subject.release)}, on {len(rows)} records asked {TIMES + 1} times"
    return Precondition("served", "passed", text, detail)


def _chance(noise: Noise, seen: Float) -> float:
    """Return the probability of noise so far from the declared kind, in shape or in size, both ways; at most 1.

    Shape by Kolmogorov and Smirnov; size exactly: ``sum |z| / b`` of Laplace noise is Gamma(n, 1), ``sum z^2 / s^2`` of
    normal noise chi-square with n degrees of freedom.
    """
    from scipy.stats import chi2, gamma, kstest

    n = len(seen)
    if isinstance(noise, Laplace):
        below = gamma.cdf(np.abs(seen).sum() / noise.scale, n)
    else:
        below = chi2.cdf((seen**2).sum() / noise.scale**2, n)
    shape = float(kstest(noise.below(seen), "uniform").pvalue)
    return float(min(1.0, 2 * min(2 * min(below, 1 - below), shape)))


def words(release: Release) -> str:
    """Return what a release hands out, in words."""
    if release.noise is not None:
        return f"numbers with {type(release.noise).__name__} noise of scale {release.noise.scale:g}"
    said = {
        "probabilities": "probabilities" if release.temperature != 1 else "exact probabilities",
        "rounded": f"probabilities rounded to {release.step:g}",
        "binned": f"centres of bins of width {release.step:g}",
        "top_k": f"probabilities of the {release.k} likeliest labels"
        if release.k > 1
        else "the likeliest label's probability",
        "label": "labels alone",
    }[release.form]
    return said if release.temperature == 1 else f"{said} at temperature {release.temperature:g}"


def _kind(values: Float, log_p: Float) -> str:
    """Return in words what values look like."""
    if not ((values >= 0).all() and (values <= 1 + 1e-9).all()):
        return "numbers that are no probabilities"
    if _is_one_hot(values):
        return "labels"
    exact = admissible(values, log_p, Release(), SAME)
    return "exact probabilities" if exact.all() else "other numbers"


def _is_one_hot(values: Float) -> bool:
    ones: NDArray[np.bool_] = values == 1
    return bool(((values == 0) | ones).all() and (ones.sum(axis=1) == 1).all())
