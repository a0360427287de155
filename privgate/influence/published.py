"""What the first question tells beside its numbers, the paper's propositions as published among it; none approves."""

from types import ModuleType
from typing import Any

import numpy as np

from privgate.evidence import CaseNote, InfluencePart, PublishedBound, UnitCoverage
from privgate.influence import left_out, person_table, regressors
from privgate.run.needs import Need
from privgate.run.run import Run


def naive_bayes_smoothed(n: int, smallest_class: int, n_features: int, n_values: int) -> float:
    """Return ln delta of Proposition 6.5 as published, nats: v is the largest number of values of a feature."""
    if smallest_class < 1 or n < 2:
        return float("inf")
    ratio = (smallest_class + n_values) / smallest_class
    return float((n_features - 1) * np.log(ratio) + np.log(n / (n - 1)))


def list_published(run: Run) -> tuple[PublishedBound, ...]:
    """Return what a proposition that its authors would have applied here says, and the certificate's value beside it.

    Theorem 6.2 derives a DTP from a stability constant: max(PDTP, ln delta), nats. It bounds and approves nothing.
    """
    subject, estimator = run.subject, run.subject.recipe.library_estimator
    kind, domain = type(estimator).__name__, subject.data.effective_domain
    if kind not in ("CategoricalNB", "BernoulliNB") or getattr(estimator, "alpha", None) != 1.0 or domain is None:
        return ()
    values = 2 if kind == "BernoulliNB" else max(domain.categories or (0,))
    smallest = int(np.bincount(subject.label_codes).min())
    log_delta = naive_bayes_smoothed(subject.data.n, smallest, int(subject.data.X.shape[1]), int(values))
    people = run.compute(person_table.list_people)
    return (
        PublishedBound(
            name="Proposition 6.5, naive Bayes with Laplace smoothing",
            value=max(float(np.max(people["pdtp"])), log_delta),
            corrected=float(np.max(people["dtp_upper"])),
            because="the proposition bounds unnormalised scores; for the probabilities that a library releases it "
            "is false, and another question can tell more than the person's own",
            source="Long et al. (2017), Proposition 6.5 and Theorem 6.2",
        ),
    )


def find_table(run: Run) -> ModuleType | None:
    """Return the module whose per-person table was made; None where no rule needed one, or it could not be made."""
    return next((table for table in (person_table, regressors) if run.has_computed(table.list_people)), None)


def describe_influence(run: Run) -> InfluencePart | None:
    """Return how the per-person table was come by; None where there is none."""
    if (people := find_table(run)) is None:
        return None
    refits = run.compute(left_out.leave_out)
    facts: dict[str, Any] = {
        "coverage": describe_coverage(run),
        "engines": refits.shares,
        "declined": refits.declined,
        "cases": tuple(CaseNote.from_kept(k) for k in people.list_cases(run)),
    }
    if people is regressors:
        return InfluencePart(**facts, sensitivity=regressors.show_figures(run))
    return InfluencePart(
        **facts,
        certificates=run.compute(person_table.list_notes),
        as_published=list_published(run) if Need.EVERY_QUERY in run.needs else (),
    )


# For how many people figures speak: who was left out, and who was not.


def describe_end(run: Run) -> str:
    """Return that people were left out of the work, and what their figures are worth, one sentence; else empty."""
    if not left_out.count_missing(run):
        return ""
    people, decided = run.compute(left_out.leave_out).people, run.compute(left_out.leave_out).decided_by
    return (
        f"the others of {people:,} people were not left out of any training, because the rule "
        f"{decided} was decided before; riskiest first, so that figures over all people are lower limits only"
    )


def describe_missing(run: Run) -> dict[str, Any]:
    """Return for evidence of how many people nothing was computed, and which rule decided that; empty where of none."""
    missing = left_out.count_missing(run)
    return {"not_computed": missing, "decided_by": run.compute(left_out.leave_out).decided_by} if missing else {}


def describe_theorem(run: Run) -> str:
    """Return what theorems say of whom, one sentence; empty where people had to be left out."""
    if (limits := run.compute(left_out.limit_everybody)) is None:
        return ""
    some = run.compute(left_out.plan_people).sizes[0]
    return (
        f"a certificate over all questions limits everybody's change to {limits.upper.max():.4g} nats; "
        f"{some} people drawn at random are trained without, to contradict it"
    )


def describe_coverage(run: Run) -> UnitCoverage:
    """Return how many of all people were measured, and what a sample says about the others."""
    refits = run.compute(left_out.leave_out)
    claims = (describe_end(run), describe_theorem(run) or run.compute(left_out.plan_people).lost)
    return UnitCoverage(
        n_measured=len(refits.retrained.units),
        n_units=run.n_units,
        claim="; ".join(c for c in claims if c),
        not_computed=left_out.count_missing(run),
        decided_by=refits.decided_by,
    )
