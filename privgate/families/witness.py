"""Certificates are compared with real models: one bound below a change that was seen silences its theorem.

A theorem speaks about a formula; what is deployed is a library's floating-point arithmetic, on data that may break a
hypothesis nobody thought of. So the models that are trained again in every run are asked where a certificate says that
they differ most, and where direct queries never look.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import digest
from privgate.families import listed, questions
from privgate.families.certificate import Certificate
from privgate.families.pipelines.seen_through import lifted, seen
from privgate.families.retrained import Retrained
from privgate.subject.containers import stack, take
from privgate.subject.subject import Subject

Float = NDArray[np.float64]
Index = NDArray[np.int64]

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
            if subject.data.domain is not None:
                kept &= subject.data.domain.holds(container)
            container = take(container, np.flatnonzero(kept))
        whose = whose[kept]
        if not len(whose):
            return subject, rows
        size = len(subject.data.pool()[1])
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
                f"real models with and without unit {int(units[worst])} differ by {seen[worst]:.4g} nats at a question "
                f"of the domain, and it said {upper[worst]:.4g} at most"
            )
            detail = {"unit": int(units[worst]), "seen": float(seen[worst]), "upper": float(upper[worst])}
            detail["units_above"] = int((excess > TOLERANCE).sum())
        self.silenced[certificate.name] = (text, detail)
        return f"does not apply, because {text}"
