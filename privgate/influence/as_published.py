"""What the paper's stability propositions would have said of this model, beside what is true; approves nothing."""

import numpy as np

from privgate.evidence import PublishedBound
from privgate.influence import per_unit, published
from privgate.run.run import Run


def rows(run: Run) -> tuple[PublishedBound, ...]:
    """Return one row a proposition that its authors would have applied here: name, value, corrected, because, source.

    The published value is max(PDTP, ln delta) as Theorem 6.2 reads it; the corrected one is the certificate's.
    """
    subject = run.subject
    estimator = subject.recipe.library_estimator
    kind = type(estimator).__name__
    domain = subject.data.effective_domain
    if kind not in ("CategoricalNB", "BernoulliNB") or getattr(estimator, "alpha", None) != 1.0 or domain is None:
        return ()
    values = 2 if kind == "BernoulliNB" else max(domain.categories or (0,))
    smallest = int(np.bincount(subject.label_codes).min())
    log_delta = published.naive_bayes_smoothed(subject.data.n, smallest, int(subject.data.X.shape[1]), int(values))
    pdtp = float(np.max(run.once(per_unit.table)["pdtp"]))
    return (
        PublishedBound(
            name="Proposition 6.5, naive Bayes with Laplace smoothing",
            value=published.claimed_dtp(pdtp, log_delta),
            corrected=float(np.max(run.once(per_unit.table)["dtp_upper"])),
            because="the proposition bounds unnormalised scores; for the probabilities that a library releases it "
            "is false, and another question can tell more than the person's own",
            source="Long et al. (2017), Proposition 6.5 and Theorem 6.2",
        ),
    )
