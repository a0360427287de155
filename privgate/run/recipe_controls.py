"""The second control before any leave-one-out number counts: the recipe depends on its data; and who reads a seed."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from privgate.arrays import Index
from privgate.evidence import Precondition
from privgate.families.refit import no_answers
from privgate.run import changed, reproduction
from privgate.run.changed import Probe
from privgate.statistics import leakage
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training.fit import Answer, Fit
from privgate.training.fleet import Fleet

#: trainings on the same data that are compared; a change counts where it exceeds ``BEYOND`` times their differences
ALIKE, BEYOND = 4, 10.0
#: people who are left out twice, so that noise in those trainings alone is seen
TWICE = 3
#: share of blocks, or of single records, without any influence from which on a recipe "ignores" data: below a half,
#: above what is held out for early stopping. An ignored half goes unnoticed with probability
#: P(Bin(110, 1/2) <= 35) = 9e-5, together with what ``FIRST`` and ``CLEAR`` let through 1.5e-4
IGNORED = 0.325
#: single records that are tried first: if all of them matter, no more are; P(Bin(14, 1/2) = 0) = 6e-5
FIRST = 14
#: trainings more where single records seem ignored
IF_UNCLEAR = changed.SINGLES + changed.MORE - FIRST
#: shares of the next single records ignored between which more are tried: P(Bin(40, 1/2) <= 4) = 9e-8
CLEAR = 0.1
#: runs on each of two sides, compared as samples: the least p-value of all C(14, 7) / 2 splits is 5.8e-4
SIDE = 7
#: probability that a recipe which ignores its data passes for one that uses it, in comparisons of samples
LEVEL = 1e-3


def depends_on_data(subject: Subject, fleet: Fleet, *, people: bool = True) -> Precondition:
    """Judge whether the recipe learns from the data it is given: from all of it, and with people left out as well.

    A random half left out, and 20 relabelled records, must move predictions: else weights are cached. The same must
    hold where one person is left out, for several people: weights reused there would make every influence a false zero.
    Relabelled stretches of the data and relabelled single records show a part that is ignored: everything that
    leave-one-out could say about those records would be a false zero, too. A change counts where it is beyond ten times
    what repeated trainings differ by. Where nothing is asked about single ``people``, nobody is left out and no single
    record relabelled: shadow models leave a half out.

    Notes
    -----
    What cannot be seen: a recipe that recognises the very records it is given and answers from a store only then. The
    finding that nobody's record matters (``influence.leave_one_out``) is what remains of such a store.
    """
    if len(subject.classes) < 2:
        return reproduction.doubt("depends_on_data", "the training data has one class only; no label can be exchanged")
    if subject.recipe.dp is not None and subject.recipe.seed is None:
        return _depends_in_distribution(subject, fleet)
    queries = reproduction.compared(subject)
    whole, one_out, blocks, singles = _probes(subject, queries, people=people)
    label = "checking that training uses its data"
    probes = [*whole, *one_out, *blocks, *singles[:FIRST]]
    some = changed.people(subject)[: TWICE * people]
    twice = [changed.without(subject, u) for u in some]
    alike = [changed.full(subject, repeat=r) for r in range(ALIKE)]
    alike += [changed.without(subject, u, repeat=1) for u in some]
    plain = {p.against.key: p.against for p in probes if p.against is not None} | {f.key: f for f in twice}
    first = fleet.each(subject, [*alike, *plain.values()], label=label)
    if problem := reproduction.problem_in(read() for read in first[:ALIKE]):
        return reproduction.doubt("depends_on_data", no_answers(problem))
    known = dict(zip(plain, first[len(alike) :], strict=True)) | {"": first[0]}
    apart = [_between(subject, known[f.key](), a()) for f, a in zip(twice, first[ALIKE : len(alike)], strict=True)]
    noise = max(leakage.widest(subject.comparable(read().log_p) for read in first[:ALIKE]), *apart, 0.0)
    if noise > reproduction.DETERMINISTIC:
        return reproduction.doubt(
            "depends_on_data",
            f"trainings on the same data differ by up to {noise:.2g}: what moves predictions cannot be told from noise",
            {"between_two_trainings": noise},
        )
    asked = _Asked(subject, fleet, known, BEYOND * noise, label)
    asked.ask(probes)
    parts = {"whole": whole, "one_out": one_out, "blocks": blocks, "singles": asked.enough(singles)}
    return _judged(asked, parts, noise, people=people, constant=_spread(subject, first[0](), queries) <= BEYOND * noise)


def remembers_nothing(subject: Subject, fleet: Fleet, noise: float) -> Precondition | None:
    """Judge whether training remembers what the same process trained on before.

    None where nobody's own code runs, on a cluster, and where a claim leaves the noise without a seed. One half of the
    people, and all but one, are trained on here, where all were, and in new processes.
    Their answers must be the same: a cache that outlives a training would make every influence a false zero.
    """
    if subject.recipe.library_estimator is not None or (subject.recipe.dp is not None and subject.recipe.seed is None):
        return None
    whole, apart = _probes(subject, reproduction.compared(subject))[0], 0.0
    alone = [changed.without(subject, u) for u in changed.people(subject)[:1]]
    for fit in (whole[0].fit, *alone):  # each in a process of its own
        used = fleet.fits(subject, [fit], label="checking that training remembers nothing")[0]
        fresh = fleet.alone(subject, fit)
        if fresh is None:
            return None
        if fresh.problem and not used.problem:
            text = f"training in a new process, without files that earlier trainings left, fails: {fresh.problem}"
            return reproduction.doubt("remembers_nothing", text, {"between_processes": np.inf})
        if used.problem or fresh.problem:
            apart = max(apart, np.inf if used.problem != fresh.problem else 0.0)
        else:
            shown = (subject.comparable(used.log_p), subject.comparable(fresh.log_p))
            apart = max(apart, reproduction.gap(*shown))
    if apart <= max(BEYOND * noise, reproduction.DETERMINISTIC):
        return Precondition("remembers_nothing", "passed", "training in a new process gives the same model")
    text = (
        f"training remembers what was trained before in the same process or in files: on the same people a "
        f"new process answers otherwise (by {apart:.2g}), so that a person who is left out may be known; keep nothing "
        "outside of the training function"
    )
    return reproduction.doubt("remembers_nothing", text, {"between_processes": float(apart)})


def _judged(
    asked: "_Asked", parts: dict[str, list[Probe]], noise: float, *, people: bool, constant: bool
) -> Precondition:
    """Return the finding on probes that were asked; ``constant``: the model answers the same about everybody."""
    ignored = max(asked.idle_share(parts[name]) for name in (("blocks", "singles") if people else ("blocks",)))
    moves = [asked.moved[p.fit.key] for p in parts["singles"]]
    detail: dict[str, Any] = {
        "moved_by": {p.what: asked.moved[p.fit.key] for p in [*parts["whole"], *parts["blocks"]]},
        "moved_with_one_out": [asked.moved[p.fit.key] for p in parts["one_out"]],
        "blocks_ignored": len(asked.idle(parts["blocks"])),
        "singles_ignored": len(asked.idle(parts["singles"])),
        "singles": len(parts["singles"]),
        "single_median": float(np.median(moves)) if moves else (0.0 if people else None),
        "between_two_trainings": noise,
    }
    # half of the data may be too little for a recipe's own validation split; other trainings show what it does
    halves = {p.fit.key for p in parts["whole"] if p.fit.left_out is not None and len(p.fit.left_out)}
    if idle := [p for p in asked.idle(parts["whole"]) if p.fit.key not in halves & asked.problems.keys()]:
        return reproduction.doubt(
            "depends_on_data", f"the recipe does not depend on its data: {_unmoved(asked, idle)}", detail
        )
    # a model that looks at labels only answers the same about everybody, and features are no matter to it
    found = [p for p in asked.idle(parts["one_out"]) if p.fit.members is None]
    found += [] if constant else _idle_labels(asked, parts["one_out"])
    if found:
        return reproduction.doubt(
            "depends_on_data",
            f"with one person left out, the recipe does not depend on the data that is left: {_unmoved(asked, found)} "
            f"({len(found)} of {len(parts['one_out'])} such trainings)",
            detail,
        )
    if people and not parts["one_out"]:
        return reproduction.doubt("depends_on_data", "nobody can be left out without a label being lost", detail)
    idle = asked.idle(parts["blocks"])
    if ignored >= IGNORED:
        where = f", among them {' and '.join(p.what for p in idle[:4])}" if idle else ", scattered over the data"
        said = f"the recipe ignores about {ignored:.0%} of its data{where}"
        return reproduction.doubt("depends_on_data", said, detail)
    if idle:
        text = f"predictions do not depend on {' and '.join(p.what for p in idle)}"
        return Precondition("depends_on_data", "warned", text, detail)
    return Precondition("depends_on_data", "passed", "leaving out and relabelling records moves predictions", detail)


def _idle_labels(asked: "_Asked", probes: list[Probe]) -> list[Probe]:
    """Return exchanges of features that move nothing for one label at all; a single one may miss a stump."""
    by_label: dict[int, list[Probe]] = {}
    for p in probes:
        if p.fit.members is not None:
            by_label.setdefault(p.fit.relabel[0][1], []).append(p)
    several = [group for group in by_label.values() if len(group) > 1] or list(by_label.values())
    return [p for group in several if len(asked.idle(group)) == len(group) for p in group]


def _unmoved(asked: "_Asked", idle: list[Probe]) -> str:
    """Return what moves no prediction, or why training on changed data shows nothing."""
    if why := next((asked.problems[p.fit.key] for p in idle if p.fit.key in asked.problems), ""):
        return f"training on changed data failed, which shows nothing ({why})"
    return f"{' and '.join(dict.fromkeys(p.what for p in idle))} moves no prediction"


class _Asked:
    """Probes that were trained, and how far each moved predictions.

    Training that fails on changed data shows no dependence: a recipe may check its input and then use stored weights.
    """

    def __init__(
        self, subject: Subject, fleet: Fleet, known: dict[str, Callable[[], Answer]], floor: float, label: str
    ) -> None:
        self.subject, self.fleet, self.known, self.floor, self.label = subject, fleet, known, floor, label
        self.moved: dict[str, float] = {}
        self.problems: dict[str, str] = {}

    def ask(self, probes: list[Probe]) -> None:
        """Train on every changed data set and compare with the training on unchanged data."""
        answers = self.fleet.each(self.subject, [p.fit for p in probes], label=self.label)
        for probe, answer in zip(probes, (read() for read in answers), strict=True):
            before = self.known["" if probe.against is None else probe.against.key]()
            key = probe.fit.key
            if problem := answer.problem or before.problem:
                self.problems[key], self.moved[key] = problem, 0.0
            else:
                shown, rows = self.subject.comparable, probe.fit.queries
                own = before.log_p if len(rows) == len(before.log_p) else before.log_p[rows]
                self.moved[key] = reproduction.gap(shown(own), shown(answer.log_p))

    def enough(self, singles: list[Probe]) -> list[Probe]:
        """Return so many single records, all asked, as it takes to see whether a part of them is ignored."""
        if not self.idle(singles[:FIRST]):
            return singles[:FIRST]
        self.ask(singles[FIRST : changed.SINGLES])
        if not CLEAR < self.idle_share(singles[: changed.SINGLES]) < IGNORED:
            return singles[: changed.SINGLES]
        self.ask(singles[changed.SINGLES :])
        return singles

    def idle(self, probes: list[Probe]) -> list[Probe]:
        """Return the probes that moved nothing beyond noise."""
        return [p for p in probes if not self.moved[p.fit.key] > self.floor]

    def idle_share(self, probes: list[Probe]) -> float:
        """Return their share; all of none."""
        return len(self.idle(probes)) / len(probes) if probes else 1.0


def _probes(
    subject: Subject, queries: Index, *, people: bool = True
) -> tuple[list[Probe], list[Probe], list[Probe], list[Probe]]:
    """Return (whole, one person out, blocks, singles), drawn by digest."""
    rng = subject.generator("depends_on_data")
    return (
        changed.whole(subject, rng, queries),
        changed.one_out(subject, rng) if people else [],
        changed.blocks(subject, rng, queries),
        changed.singles(subject, rng, queries) if people else [],
    )


def fits(subject: Subject, *, people: bool = True) -> list[Fit]:
    """Return the calls that both controls make, less what single records that seem ignored may add."""
    twice = [changed.full(subject, repeat=r) for r in range(2)]
    if len(subject.classes) < 2:
        return twice
    whole, one_out, blocks, singles = _probes(subject, reproduction.compared(subject), people=people)
    probes = [*whole, *one_out, *blocks, *singles[:FIRST]]
    made = [*twice, *(changed.full(subject, repeat=r) for r in range(ALIKE))]
    made += [changed.without(subject, u, repeat=r) for u in changed.people(subject)[: TWICE * people] for r in range(2)]
    return made + [f for p in probes for f in (p.fit, p.against) if f is not None]


def trainings(subject: Subject, more: Sequence[Fit] = (), *, people: bool = True) -> int:
    """Return how many trainings both controls make together with ``more`` calls, each once."""
    if subject.recipe.dp is not None and subject.recipe.seed is None:
        return 4 * SIDE + len({f.encoding for f in more})
    return len({f.encoding for f in [*fits(subject, people=people), *more]})


def _depends_in_distribution(subject: Subject, fleet: Fleet) -> Precondition:
    """Compare runs on the data with runs of which half of the labels is changed, on all people and with one left out.

    Each comparison is an exact permutation test over runs at ``LEVEL``: a recipe that ignores its data passes one with
    probability 5.8e-4.
    """
    rng = subject.generator("depends_on_data")
    asked = changed.pool(subject)
    everybody = np.arange(subject.data.n, dtype=np.int64)
    people = changed.people(subject)
    if not people:
        return reproduction.doubt("depends_on_data", "nobody can be left out without a label being lost")
    half = changed.relabelled(subject, rng.permutation(everybody)[: subject.data.n // 2], rng)
    one, other = list[Fit](), list[Fit]()
    for r in range(SIDE):
        gone = subject.data.units[people[r % len(people)]]
        relabel = tuple((row, code) for row, code in half if row not in gone)
        one.append(Fit(None, asked, left_out=gone, repeat=r))
        other.append(Fit(None, asked, left_out=gone, relabel=relabel, repeat=r))
    sides = {
        "relabelling half of the data": (
            [changed.full(subject, repeat=r) for r in range(SIDE)],
            [Fit(None, asked, left_out=changed.NOBODY, relabel=half, repeat=r) for r in range(SIDE)],
        ),
        "with one person left out, relabelling half of the others": (one, other),
    }
    detail: dict[str, Any] = {"runs": SIDE, "permutation_p": {}}
    for what, (before, after) in sides.items():
        answers = fleet.fits(subject, [*before, *after], label="checking that training uses its data")
        if problem := reproduction.problem_in(answers):
            return reproduction.doubt("depends_on_data", f"the recipe cannot be trained: {problem}", detail)
        runs = subject.comparable(np.stack([a.log_p[: subject.data.n] for a in answers]))
        p = leakage.permutation_p(runs.reshape(2 * SIDE, -1))
        detail["permutation_p"][what] = p
        if p > LEVEL:
            return reproduction.doubt(
                "depends_on_data", f"{what} moves predictions no more than the noise does", detail
            )
    return Precondition(
        "depends_on_data", "passed", "relabelling half of the data moves predictions beyond the noise", detail
    )


def _between(subject: Subject, one: Answer, other: Answer) -> float:
    """Return how far two trainings on the same data are apart; a failed one is compared with nothing."""
    return (
        0.0
        if one.problem or other.problem
        else reproduction.gap(subject.comparable(one.log_p), subject.comparable(other.log_p))
    )


def _spread(subject: Subject, answer: Answer, rows: Index) -> float:
    """Return how much answers about different records differ."""
    return float(np.ptp(subject.comparable(answer.log_p[rows]), axis=0).max())


def _never(_: Any) -> bool:
    return True


def _without_sampling(solver: Any) -> bool:
    return solver.solver in ("lbfgs", "newton-cg", "newton-cholesky", "cholesky", "svd", "lsqr", "sparse_cg", "auto")


def _in_turn(descent: Any) -> bool:
    return bool(descent.selection == "cyclic")


#: class -> whether it reads no seed with its parameters
_READS_NONE: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("GaussianNB", "CategoricalNB", "BernoulliNB", "MultinomialNB", "ComplementNB"), _never),
    **dict.fromkeys(("KNeighborsClassifier", "KNeighborsRegressor", "NearestCentroid", "LinearRegression"), _never),
    **dict.fromkeys(("LinearDiscriminantAnalysis", "QuadraticDiscriminantAnalysis", "KernelRidge"), _never),
    **dict.fromkeys(("Pipeline", "ColumnTransformer", "FeatureUnion", "FixedScaler", "FixedOneHot"), _never),
    **dict.fromkeys(("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler", "Normalizer"), _never),
    **dict.fromkeys(("OneHotEncoder", "OrdinalEncoder", "SimpleImputer", "Binarizer", "PolynomialFeatures"), _never),
    **dict.fromkeys(("CountVectorizer", "TfidfVectorizer", "TfidfTransformer", "HashingVectorizer"), _never),
    # random_state is read "when solver == 'sag', 'saga' or 'liblinear'"; of Ridge by 'sag' and 'saga'
    **dict.fromkeys(("LogisticRegression", "Ridge"), _without_sampling),
    # it is read where selection is 'random'
    **dict.fromkeys(("Lasso", "ElasticNet"), _in_turn),
}


def reads_no_seed(recipe: Recipe) -> bool:
    """Return whether the recipe is an estimator made of classes alone that are known to read no seed as they are set.

    A function may draw from its seed whatever it is called, and a class that is derived from one of these is another.
    """
    estimator = recipe.library_estimator
    if estimator is None:
        return False
    parts = [estimator, *(p for p in estimator.get_params(deep=True).values() if hasattr(p, "get_params"))]
    return all(type(p).__name__ in _READS_NONE and _READS_NONE[type(p).__name__](p) for p in parts)
