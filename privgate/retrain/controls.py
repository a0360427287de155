"""Two controls before any leave-one-out number counts: the recipe reproduces the model, and depends on its data."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from privgate.evidence import Precondition
from privgate.retrain.choice import generator
from privgate.retrain.fit import Answer, Fit, Float, Index
from privgate.retrain.fleet import Fleet
from privgate.subject import Subject

#: probabilities of one recipe on another machine, with other threads, differ by less than this
REPRODUCED = 1e-4
#: a second training on one machine with the same seed differs by less than this; float32 sums are not associative
DETERMINISTIC = 1e-6
#: probabilities are compared on at most this many training records, chosen by digest
COMPARED = 10_000
#: records relabelled together, as the design demands
RELABELLED = 20
#: stretches of neighbouring records, each relabelled by itself: an ignored half is four of them
BLOCKS = 8
#: single records relabelled one at a time; half of 40 ignored goes unnoticed in 0.8 % of cases, Bin(40, 1/2) <= 12
SINGLES = 40
#: share of blocks, or of single records, without any influence from which on a recipe "ignores" data: below a half,
#: above what is held out for early stopping
IGNORED = 0.325
#: runs of a recipe without a seed, compared as samples
RUNS = 5

_NOBODY: Index = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Probe:
    """A change to the training data that must move predictions.

    Parameters
    ----------
    what : str
        In words, for the report.
    fit : Fit
    """

    what: str
    fit: Fit


def reproduces(subject: Subject, fleet: Fleet) -> Precondition:
    """Judge whether the recipe gives the registered model again, and the same model twice.

    Trains twice on everything with the recipe's seed and compares probabilities with each other and with the stored
    model's on the training records (all, or ``COMPARED`` chosen by digest). A recipe trained with differential privacy
    has no seed: its stored model must be as close to reruns as reruns are to each other.
    """
    if subject.recipe.dp is not None and subject.recipe.seed is None:
        return _reproduces_in_distribution(subject, fleet)
    answers = fleet.fits(subject, [_full(subject), _full(subject, repeat=1)], label="checking the recipe")
    if problem := _problem(answers):
        return _doubt("reproduces", f"the recipe cannot be trained on its own complete data: {problem}")
    once, again = (np.exp(a.log_p) for a in answers)
    noise = _gap(once, again)
    detail: dict[str, Any] = {"between_two_trainings": noise, "tolerance": REPRODUCED, "deterministic": DETERMINISTIC}
    if noise > DETERMINISTIC:
        how = (
            "leaves random_state open; give Recipe(seed=…)"
            if subject.recipe.seed is None
            else f"is not deterministic given its seed {subject.recipe.seed}; hand the seed to every random generator"
        )
        return _doubt(
            "reproduces", f"two trainings on the same data differ by up to {noise:.2g}: the recipe {how}", detail
        )
    if subject.model is None:
        return Precondition(
            "reproduces", "passed", "two trainings agree; there is no stored model to compare with", detail
        )
    rows, which = _compared(subject)
    stored = fleet.registered(subject, rows)
    if stored.problem:
        return _doubt("reproduces", f"the registered model could not be asked: {stored.problem}", detail)
    gap = _gap(np.exp(stored.log_p), once[rows])
    detail |= {"from_registered_model": gap, "records_compared": len(rows)}
    if not gap <= REPRODUCED:
        return _doubt(
            "reproduces",
            f"the recipe does not reproduce the registered model: probabilities differ by up to {gap:.2g} on {which}, "
            f"allowed is {REPRODUCED:g}",
            detail,
        )
    return Precondition(
        "reproduces", "passed", f"the recipe reproduces the registered model on {which} to {REPRODUCED:g}", detail
    )


def _reproduces_in_distribution(subject: Subject, fleet: Fleet) -> Precondition:
    answers = fleet.fits(subject, [_full(subject, repeat=r) for r in range(RUNS)], label="checking the recipe")
    if problem := _problem(answers):
        return _doubt("reproduces", f"the recipe cannot be trained on its own complete data: {problem}")
    if subject.model is None:
        return Precondition("reproduces", "passed", "there is no stored model to compare with", {"runs": RUNS})
    rows, which = _compared(subject)
    stored = fleet.registered(subject, rows)
    if stored.problem:
        return _doubt("reproduces", f"the registered model could not be asked: {stored.problem}")
    runs = np.exp(np.stack([a.log_p[rows] for a in answers]))
    among = np.abs(runs[:, None] - runs[None]).mean(axis=(2, 3)).sum(axis=1) / (RUNS - 1)
    own = float(np.abs(runs - np.exp(stored.log_p)).mean())
    detail = {"runs": RUNS, "from_registered_model": own, "between_runs": float(among.max())}
    if not own <= 2 * among.max():
        return _doubt(
            "reproduces",
            f"the registered model is {own:.2g} away from reruns of the recipe on {which}, reruns only "
            f"{among.max():.2g} from each other",
            detail,
        )
    return Precondition(
        "reproduces",
        "passed",
        f"the registered model is as close to reruns as they are to each other, on {which}",
        detail,
    )


def depends_on_data(subject: Subject, fleet: Fleet) -> Precondition:
    """Judge whether the recipe learns from the data it is given, from all of it.

    A random half left out, and 20 relabelled records, must move predictions: else weights are cached. Relabelled
    stretches of the data and relabelled single records show a part that is ignored: everything that leave-one-out could
    say about those records would be a false zero.
    """
    if len(subject.classes) < 2:
        return _doubt("depends_on_data", "the training data has one class only; no label can be exchanged")
    if subject.recipe.dp is not None and subject.recipe.seed is None:
        return _depends_in_distribution(subject, fleet)
    rng = generator(subject, "depends_on_data")
    queries, _ = _compared(subject)
    whole, blocks, singles = _probes(subject, rng, queries)
    plain = [_full(subject), _full(subject, repeat=1)]
    answers = fleet.fits(
        subject, [*plain, *(p.fit for p in [*whole, *blocks, *singles])], label="checking that training uses its data"
    )
    if problem := _problem(answers[:2]):
        return _doubt("depends_on_data", f"the recipe cannot be trained on its own complete data: {problem}")
    before = np.exp(answers[0].log_p)
    noise = _gap(before, np.exp(answers[1].log_p))
    moves = [_movement(before, p.fit, a) for p, a in zip([*whole, *blocks, *singles], answers[2:], strict=True)]
    still = [not m > noise for m in moves]
    parts = np.split(np.array(still), [len(whole), len(whole) + len(blocks)])
    detail = {
        "moved_by": {p.what: m for p, m in zip([*whole, *blocks], moves, strict=False)},
        "blocks_ignored": int(parts[1].sum()),
        "singles_ignored": int(parts[2].sum()),
        "singles": len(singles),
        "between_two_trainings": noise,
    }
    if parts[0].any():
        idle = [p.what for p, s in zip(whole, parts[0], strict=True) if s]
        return _doubt(
            "depends_on_data",
            f"the recipe does not depend on its data: {' and '.join(idle)} moves no prediction",
            detail,
        )
    idle = [p.what for p, s in zip(blocks, parts[1], strict=True) if s]
    if parts[1].mean() >= IGNORED or parts[2].mean() >= IGNORED:
        where = f", among them {' and '.join(idle[:4])}" if idle else ", scattered over the data"
        share = max(parts[1].mean(), parts[2].mean())
        return _doubt("depends_on_data", f"the recipe ignores about {share:.0%} of its data{where}", detail)
    if idle:
        return Precondition("depends_on_data", "warned", f"predictions do not depend on {' and '.join(idle)}", detail)
    return Precondition("depends_on_data", "passed", "leaving out and relabelling records moves predictions", detail)


def _depends_in_distribution(subject: Subject, fleet: Fleet) -> Precondition:
    """Compare runs on the data with runs on data of which half is relabelled; exact permutation test over runs."""
    rng = generator(subject, "depends_on_data")
    half = rng.permutation(subject.data.n)[: subject.data.n // 2]
    relabel = _relabelled(subject, half, rng)
    size = len(subject.data.y)
    queries = np.arange(size, dtype=np.int64)
    fits = [_full(subject, repeat=r) for r in range(RUNS)]
    fits += [Fit(None, queries, left_out=_NOBODY, relabel=relabel, repeat=r) for r in range(RUNS)]
    answers = fleet.fits(subject, fits, label="checking that training uses its data")
    if problem := _problem(answers):
        return _doubt("depends_on_data", f"the recipe cannot be trained: {problem}")
    runs = np.exp(np.stack([a.log_p[:size] for a in answers])).reshape(2 * RUNS, -1)
    from itertools import combinations

    splits = [c for c in combinations(range(2 * RUNS), RUNS) if 0 in c]
    shift = [np.linalg.norm(runs[list(c)].mean(axis=0) - np.delete(runs, c, axis=0).mean(axis=0)) for c in splits]
    rank = int(np.sum(np.array(shift) >= shift[0] * (1 - 1e-12)))  # the first split is the true one
    detail = {"permutation_p": rank / len(splits), "runs": RUNS}
    if rank / len(splits) > 0.05:
        return _doubt(
            "depends_on_data", "relabelling half of the data moves predictions no more than the noise does", detail
        )
    return Precondition(
        "depends_on_data", "passed", "relabelling half of the data moves predictions beyond the noise", detail
    )


def _probes(subject: Subject, rng: Generator, queries: Index) -> tuple[list[Probe], list[Probe], list[Probe]]:
    n, seed = subject.data.n, subject.recipe.seed
    half = _half(subject, rng)
    some = rng.permutation(n)[: min(RELABELLED, n)]

    def changed(rows: Index) -> Fit:
        asked = np.union1d(queries, rows).astype(np.int64)
        return Fit(seed, asked, left_out=_NOBODY, relabel=_relabelled(subject, rows, rng))

    whole = [
        Probe("leaving out a random half", Fit(seed, queries, left_out=half)),
        Probe(f"relabelling {len(some)} records", changed(some)),
    ]
    stretches = [b for b in np.array_split(np.arange(n), min(BLOCKS, n)) if len(b)]
    blocks = [
        Probe(f"the records in rows {b[0]} to {b[-1]}", changed(rng.permutation(b)[:RELABELLED])) for b in stretches
    ]
    singles = [Probe(f"row {r}", changed(np.array([r]))) for r in rng.permutation(n)[: min(SINGLES, n)]]
    return whole, blocks, singles


def _half(subject: Subject, rng: Generator) -> Index:
    """Return half of the records, leaving at least one of each class."""
    order = rng.permutation(subject.data.n)
    _, kept = np.unique(subject.label_codes[order], return_index=True)
    free = np.delete(order, kept)
    return np.sort(free[: subject.data.n // 2]).astype(np.int64)


def _relabelled(subject: Subject, rows: Index, rng: Generator) -> tuple[tuple[int, int], ...]:
    """Return another label for each row."""
    K, codes = len(subject.classes), subject.label_codes
    steps = rng.integers(1, K, size=len(rows))
    return tuple((int(r), int((codes[r] + s) % K)) for r, s in sorted(zip(rows.tolist(), steps.tolist(), strict=True)))


def _full(subject: Subject, *, repeat: int = 0) -> Fit:
    """Return the call on everything, as the engines make it, so that both share one training."""
    size = subject.data.n + (0 if subject.data.candidates is None else len(subject.data.candidates[1]))
    return Fit(subject.recipe.seed, np.arange(size, dtype=np.int64), left_out=_NOBODY, repeat=repeat)


def _compared(subject: Subject) -> tuple[Index, str]:
    n = subject.data.n
    if n <= COMPARED:
        return np.arange(n, dtype=np.int64), f"all {n} training records"
    chosen = generator(subject, "compared").choice(n, COMPARED, replace=False)
    return np.sort(chosen).astype(np.int64), f"{COMPARED} of {n} training records, chosen by digest"


def _movement(before: Float, fit: Fit, answer: Answer) -> float:
    """Return the largest change of a probability; training that fails on changed data certainly depends on it."""
    return float("inf") if answer.problem else _gap(before[fit.queries], np.exp(answer.log_p))


def _gap(p: Float, q: Float) -> float:
    return float(np.abs(p - q).max())


def _problem(answers: list[Answer]) -> str:
    return next((a.problem for a in answers if a.problem), "")


def _doubt(name: str, message: str, detail: dict[str, Any] | None = None) -> Precondition:
    """Return what a failed control means: nothing was shown about the model."""
    return Precondition(name, "inconclusive", message, detail or {})
