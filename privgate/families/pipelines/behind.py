"""Engines and theorems behind first steps that are seen through: asked about the last step on transformed records."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from privgate.arrays import Index
from privgate.families.certificate import Certificate, Certified, Units, attained
from privgate.families.engine import Asked, Cost, Engine
from privgate.families.over_all_queries.accepted_range import Reach
from privgate.families.pipelines.seen_through import seen
from privgate.families.retrained import Retrained, Seeds
from privgate.subject.subject import Subject

#: how a theorem's refusal begins where it is about another kind of model
OTHER_KIND = "the recipe is not "


class EngineBehind(Engine):
    """A catalogued engine that answers for the last step of a pipeline; the re-check refits the whole pipeline."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.name, self.version, self.tolerance = engine.name, engine.version, engine.tolerance
        self.modes, self.hands_on, self.trains = engine.modes, engine.hands_on, engine.trains
        self.single_records, self.complements = engine.single_records, engine.complements
        self.certain = engine.certain

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data is not covered; empty if it is."""
        return self.engine.supports(seen(subject).subject)

    def declines(self, subject: Subject) -> str:
        """Return beforehand why ``answers`` will raise ``Declined``."""
        return self.engine.declines(seen(subject).subject)

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return what ``answers`` would take."""
        return self.engine.cost(seen(subject).subject, units, seeds, mode=mode)

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return what it can answer, and the units handed on."""
        return self.engine.answers(replace(asked, subject=seen(asked.subject).subject))

    def notes(self, subject: Subject) -> Mapping[str, Any]:
        """Return JSON values for the report."""
        return self.engine.notes(seen(subject).subject)


class CertificateBehind(Certificate):
    """A catalogued theorem about the last step, over everything that the first steps make of a query.

    The image of the declared domain may hold more than real queries lead to, so that nothing it finds counts as seen.
    """

    def __init__(self, certificate: Certificate) -> None:
        self.certificate = certificate
        self.name, self.source = certificate.name, certificate.source
        self.needs_retrained, self.asks_records = certificate.needs_retrained, certificate.asks_records

    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""
        found = seen(subject)
        why = self.certificate.unfit(found.subject)
        if found.problem and why.startswith(OTHER_KIND) and f"{found.last} " in why:
            return found.problem  # it is about the last step, and would speak if the first steps did not learn
        if found.no_image and why.startswith("no domain is declared"):
            return found.no_image
        return why

    def alone(self, subject: Subject) -> str:
        """Return why its bounds count only beside an attack rule; empty where they count by themselves."""
        return self.certificate.alone(seen(subject).subject)

    def every_data_set(self, subject: Subject) -> float:
        """Return what the theorem about the last step says of every data set; first steps learn nothing."""
        return self.certificate.every_data_set(seen(subject).subject)

    def certify(self, about: Units) -> Certified:
        """Return the bound for each of the units."""
        found = seen(about.subject)
        made = self.certificate.certify(replace(about, subject=found.subject))
        lower = made.lower if self.asks_records else np.where(np.isinf(made.lower), np.inf, 0.0)
        said = list(made.assumptions)
        if found.anywhere and found.subject.accepted is not None:
            ranges = Reach.of(found.subject.accepted, found.subject.data.X.shape[1])
            told = "" if isinstance(ranges, str) else ranges.words()
            said = ["whatever is asked, the first steps map it into fixed ranges" if s == told else s for s in said]
        return replace(
            made,
            lower=lower,
            exact=attained(lower, made.upper),
            assumptions=(*([found.words] if found.steps else []), *said),
        )


def engines(subject: Subject, catalogue: tuple[Engine, ...]) -> tuple[Engine, ...]:
    """Return the engines to ask about a subject, in order: those behind fixed first steps where there are any."""
    found = seen(subject)
    if found.subject is subject:
        return catalogue
    return tuple(e if e.name == "refit" else EngineBehind(e) for e in catalogue)


def certificates(subject: Subject, catalogue: Mapping[str, Certificate]) -> dict[str, Certificate]:
    """Return the theorems to ask about a subject."""
    found = seen(subject)
    domain = found.subject.accepted
    if found.last or (domain is not None and domain.blocks):
        return {n: CertificateBehind(c) for n, c in catalogue.items()}
    return dict(catalogue)
