"""Certificates are compared with real models: one bound below a change that was seen silences its theorem.

A theorem speaks about a formula; what is deployed is a library's floating-point arithmetic, on data that may break a
hypothesis nobody thought of. So the models that are trained again in every run are asked where a certificate says that
they differ most, and where direct queries never look.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import digest
from privgate.arrays import Float, Index
from privgate.cases import Kept, needed
from privgate.families import certificates, listed
from privgate.families import listed as questions
from privgate.families.certificate import Certificate, Certified
from privgate.families.pipelines import behind
from privgate.families.pipelines.behind import OTHER_KIND
from privgate.families.pipelines.seen_through import lifted, seen
from privgate.families.retrained import Retrained
from privgate.subject.containers import length, stack, take
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

#: nats by which a real change may exceed a bound: rounding of the comparison itself, the library's is in the bound
TOLERANCE = 1e-9


@dataclass(eq=False)
class Witness:
    """What real models, with and without a unit, were seen to answer differently.

    Parameters
    ----------
    certificates : tuple of Certificate
        Those that apply; their own maximisers are among the questions.
    seen : dict unit -> nats
        Largest change of any label at a question put to both models; infinite where training without the unit fails.
    questions : int
        Put to each pair of models, in all.
    distrusted : str
        Which fast engine of the same family disagreed with the training function; empty if none did. Engine and theorem
        share their hypotheses.
    silenced : dict certificate -> (sentence, JSON values)
    """

    certificates: tuple[Certificate, ...]
    seen: dict[int, float] = field(default_factory=dict)
    questions: int = 0
    distrusted: str = ""
    silenced: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)

    def ask(self, subject: Subject, made: Retrained, chosen: Index) -> tuple[Subject, list[Index]]:
        """Return the subject with questions as further candidates, and the pool rows to ask about each chosen unit.

        Parameters
        ----------
        made : Retrained
        chosen : int64 array
            Positions in ``made.units``, ascending.
        """
        alone = np.arange(len(chosen))
        if self.certificates and (more := listed.beside(subject, alone, (alone[:0], alone[:0]))) is not None:
            larger, (whose, query) = more  # nothing else is ever asked
            return larger, [query[whose == k] for k in range(len(chosen))]
        rng = digest.generator(subject.training_digest, start=16)
        others = np.sort(rng.choice(subject.data.n, min(questions.RANDOM, subject.data.n), replace=False)).astype(
            np.int64
        )
        #: behind first steps that are seen through, questions are made up of features, and then undone
        behind = seen(subject)
        common = questions.shared(behind.subject, rng)
        rows = [others] * len(chosen)
        if not self.certificates or not common.size:
            return subject, rows if self.certificates else [others[:0]] * len(chosen)
        parts, owner = [common], [np.full(len(common), -1)]
        for k, found in self._maximisers(subject, made, chosen):
            parts.append(found)
            owner.append(np.full(len(found), k))
        moved, whose = questions.around(behind.subject, made.units[chosen])
        parts.append(moved)
        owner.append(whose)
        whose, asked = np.concatenate(owner), np.concatenate([p for p in parts if len(p)])
        if behind.first is None:
            container, kept = questions.asked(subject, asked)
        else:
            first = np.array([subject.data.units[int(u)][0] for u in made.units[chosen]])
            stand_in = np.where(whose < 0, rng.choice(subject.data.n, len(whose)), first[np.maximum(whose, 0)])
            container = lifted(behind.first, asked, subject.data.X, stand_in)
            kept = np.full(len(whose), questions.alike(container, subject.data.X))
            if subject.accepted is not None:
                kept &= subject.accepted.holds(container)
            container = take(container, np.flatnonzero(kept))
        whose = whose[kept]
        if behind.first is not None and (odd := questions.answered(behind.first, subject, rng)) is not None:
            container = odd if not len(whose) else stack(container, odd)
            whose = np.concatenate([whose, np.full(length(odd), -1)])
        if not len(whose):
            return subject, rows
        size = subject.data.pool_size
        known = subject.data.candidates
        label = np.full(len(whose), subject.data.y[0])
        both = (container, label) if known is None else (stack(known[0], container), np.concatenate([known[1], label]))
        place = size + np.arange(len(whose))
        rows = [np.concatenate([others, place[(whose == -1) | (whose == k)]]) for k in range(len(chosen))]
        return subject.with_data(replace(subject.data, candidates=both)), rows

    def _maximisers(self, subject: Subject, made: Retrained, chosen: Index) -> Iterator[tuple[int, Float]]:
        """Yield (chosen unit, questions) where a certificate says that a unit's models differ most."""
        if not len(chosen):
            return
        keep = np.zeros(len(made.units), dtype=bool)
        keep[chosen] = True
        some = made.select(keep)
        for certificate in self.certificates:
            found = certificate.bound(subject, some.units, some if certificate.needs_retrained else None)
            if found.questions is not None:
                for k in np.flatnonzero(np.isfinite(found.questions).all(axis=1)):
                    yield int(k), found.questions[k : k + 1]

    def told(self, unit: int, change: Float) -> None:
        """Take note of the changes, shape (Q,), nats, at the questions about one unit."""
        self.seen[unit] = max(self.seen.get(unit, 0.0), float(change.max(initial=0.0)))
        self.questions += len(change)

    def change(self, units: Index) -> Float:
        """Return the largest change seen of each unit, shape (U,); 0 where none was asked about."""
        return np.array([self.seen.get(int(u), 0.0) for u in units], dtype=np.float64)

    def objects(self, certificate: Certificate, units: Index, upper: Float) -> str:
        """Return why a certificate must be silent in this run, given its bounds of ``units``; empty if it may speak."""
        if self.distrusted:
            text = (
                f"{self.distrusted} disagreed with the training function, and engine and theorem share their hypotheses"
            )
            detail: dict[str, Any] = {"engine": self.distrusted}
        elif not self.seen and np.isfinite(upper).any():
            text, detail = "no real model answered the questions that would test it", {}
        else:
            seen = self.change(units)
            excess = np.where(np.isinf(upper), 0.0, seen - np.where(np.isinf(upper), 0.0, upper))
            if not (excess > TOLERANCE).any():
                return ""
            worst = int(excess.argmax())
            text = (
                f"real models with and without person {int(units[worst])} differ by {seen[worst]:.4g} nats at a "
                f"question of the domain, and it said {upper[worst]:.4g} at most"
            )
            detail = {"unit": int(units[worst]), "seen": float(seen[worst]), "upper": float(upper[worst])}
            detail["units_above"] = int((excess > TOLERANCE).sum())
        self.silenced[certificate.name] = (text, detail)
        return f"does not apply, because {text}"


# The best bound of every unit over all certificates that apply.


def applicable(subject: Subject, *, attacked: bool = True) -> tuple[list[Certificate], list[str]]:
    """Return the certificates that apply, and a sentence for each that does not.

    Without an attack rule (``attacked``) those are left out that lower DTP and leave attacks as they were.
    """
    if subject.task != "classification":
        return [], []  # theorems of the catalogue are about probabilities
    good, notes = [], []
    for name, certificate in behind.certificates(subject, certificates.ALL).items():
        if problem := certificate.applies(subject):
            notes.append(f"{name} {problem}")
        elif not attacked and (problem := certificate.alone(subject)):
            notes.append(f"{name} does not apply, because {problem}")
        else:
            good.append(certificate)
    return good, notes


def no_theorem(subject: Subject) -> str:
    """Return why no theorem is about this kind of model at all."""
    covered = "`privgate list --all` names those that have one"
    if not subject.recipe.is_estimator:
        return f"the recipe is a function, and what it trains is not known; a theorem is about an estimator; {covered}"
    if subject.recipe.payload["predict"] is not None:
        return "the recipe releases something else than predict_proba, and no certificate is about that"
    kind = seen(subject).last or str(subject.recipe.payload["estimator"]["class"]).rpartition(":")[2]
    return f"no certificate limits all answers of {kind}; {covered}"


def reasons(notes: Iterable[str]) -> list[str]:
    """Return why certificates made for this kind of model do not apply, each reason once; nothing about other kinds."""
    found = (note.partition("because ")[2] for note in notes)
    return list(dict.fromkeys(why for why in found if why and not why.startswith(OTHER_KIND)))


def bound(
    subject: Subject,
    units: Index,
    retrained: Retrained | None,
    *,
    limit: float | None = None,
    witness: Witness | None = None,
    attacked: bool = True,
    fleet: Fleet | None = None,
) -> tuple[Certified, NDArray[Any], list[str]]:
    """Return the best upper and lower bound of each unit.

    Parameters
    ----------
    subject : Subject
    units : int64 array of shape (U,)
        Positions in ``subject.data.units``.
    retrained : Retrained, optional
        Exactly these units, in this order; certificates that need it are left out without it.
    limit : float, optional
        Policy limit, nats: effort goes first to units that lie on both sides of it.
    witness : Witness, optional
        What real models were seen to do: a certificate with one bound below that is silent.
    attacked : bool
        Whether the same policy judges attacks, beside which alone some bounds count.
    fleet : Fleet, optional
        Whose ledger remembers bounds, for a run that is not to be signed.

    Returns
    -------
    Certified
        Smallest upper, largest lower over all that apply; infinite and 0 where none does.
    object array of shape (U,) of str
        Whose upper bound it is; empty where none applies.
    list of str
        Why the others do not apply.
    """
    upper, lower = np.full(len(units), np.inf), np.zeros(len(units))
    exact = np.zeros(len(units), dtype=bool)
    by = np.full(len(units), "", dtype=object)
    assumptions: list[str] = []
    detail: dict[str, Any] = {}
    kept: list[Kept] = []
    listed = subject.accepted is not None and subject.accepted.queries is not None
    good, notes = applicable(subject, attacked=attacked)
    for certificate in good:
        if (
            limit is not None
            and np.isfinite(upper).all()
            and not ((lower <= limit) & (limit < upper)).any()
            and len(by)
        ):
            notes.append(f"{certificate.name} was not asked, because {by[0]} and those before it decide everybody")
            continue
        if certificate.needs_retrained and retrained is None:
            why = "it compares retrained models, and there are none or no rule asks over all questions"
            notes.append(f"{certificate.name} was not asked, because {why}")
            continue
        found = certificate.bound(subject, units, retrained, limit=limit, fleet=fleet)
        if np.isnan(found.upper).any() or np.isnan(found.lower).any():
            raise FloatingPointError(f"certificate {certificate.name} returned NaN: a bug, not a bound")
        if witness is not None and (objection := witness.objects(certificate, units, found.upper)):
            notes.append(f"{certificate.name} {objection}")
            continue
        better = (found.upper < upper) | (by == "")
        upper = np.where(better, found.upper, upper)
        by[better] = certificate.name
        if not listed or certificate.name == "listed_questions":  # others attain theirs anywhere in the box
            lower = np.maximum(lower, found.lower)
            exact |= found.exact
        kept += [replace(k, theorem=certificate.name) for k in found.cases]
        assumptions += [a for a in found.assumptions if a not in assumptions]
        detail[certificate.name] = found.detail
    if witness is not None:
        seen = witness.change(units)
        lower = np.maximum(lower, np.where(np.isfinite(seen), seen, 0.0))
    # a real query above an upper bound would disprove the theorem; the larger number is the safe one
    cases = needed(kept, len(subject.data.units))
    return Certified(np.maximum(upper, lower), lower, exact, tuple(assumptions), detail, cases=cases), by, notes
