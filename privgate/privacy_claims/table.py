"""Every bound of one guarantee, side by side, each with its hypotheses in words."""

from collections.abc import Sequence
from typing import Any

from privgate.privacy_claims import bounds
from privgate.privacy_claims.tradeoff import EpsilonDelta, Tradeoff

ANY_ADVERSARY = "any adversary with any knowledge of the other records"
_INCLUSION = {
    "independent": "records enter the training set independently of each other, and its exact size is not published",
    "fixed_size": "the training set is a random set of known size",
}


def bounds_table(
    epsilon: float,
    delta: float,
    prior: float,
    *,
    adjacency: str = "add_remove",
    inclusion: str = "independent",
    fprs: Sequence[float] = (),
    curve: Tradeoff | None = None,
    loss_bound: float = 1.0,
    keep: float | None = None,
) -> list[dict[str, Any]]:
    """Return one row a bound: name, epsilon, delta, prior, bound, fpr, measured (None), assumptions.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee as stated.
    prior : float in (0, 1)
        Probability of membership in the adversary's eyes before the model was seen.
    adjacency : {"add_remove", "replace_one"}
    inclusion : {"independent", "fixed_size"}
        How records came into the training set; see ``bounds.effective_guarantee``.
    fprs : sequence of float
        For TPR and, with δ > 0, for positive and negative accuracy, which have no bound without one.
    curve : Tradeoff, optional
        The mechanism's own curve, for add/remove and independent inclusion or replace-one and fixed size alike.
    loss_bound : float
        B of the generalization gap.
    keep : float, optional
        Share of the pool that training kept, in secret: adds the rows of both secrets.
    """
    e, d = bounds.effective_guarantee(epsilon, delta, adjacency=adjacency, inclusion=inclusion)
    words = [ANY_ADVERSARY, _INCLUSION[inclusion], _adjacency(adjacency, inclusion)]

    def row(name: str, bound: float, *, fpr: float | None = None, extra: str = "", p: float | None = prior) -> None:
        rows.append(
            {
                "name": name,
                "epsilon": e,
                "delta": d,
                "prior": p,
                "fpr": fpr,
                "bound": bound,
                "measured": None,
                "assumptions": [*words, *([extra] if extra else [])],
            }
        )

    rows: list[dict[str, Any]] = []
    known = EpsilonDelta(e, d)
    if d == 0:
        row("positive accuracy (Thudi, Theorem 1)", bounds.positive_accuracy(e, prior)[1])
        row("negative accuracy (Thudi, Corollary 1)", bounds.negative_accuracy(e, prior)[1])
    row("accuracy", known.accuracy(prior))
    row("advantage, TPR - FPR", known.advantage(), p=None)
    usable = None if inclusion == "fixed_size" and adjacency == "add_remove" else curve
    for source, which in ((known, ""), (usable, ", exact curve")):
        if source is None:
            continue
        if which:
            row(f"accuracy{which}", source.accuracy(prior), extra=source.name)
            row(f"advantage{which}", source.advantage(), extra=source.name, p=None)
        for f in fprs:
            row(f"TPR at FPR {f:g}{which}", source.tpr(f), fpr=f, p=None)
            row(
                f"positive accuracy at FPR {f:g}{which}",
                source.positive_accuracy(prior, f),
                fpr=f,
                extra=f"tests that wrongly accuse at least {f:g} of non-members; rarer tests may be more certain",
            )
            row(
                f"negative accuracy at miss rate {f:g}{which}",
                source.negative_accuracy(prior, f),
                fpr=f,
                extra=f"tests that miss at least {f:g} of members",
            )
    _earlier(row, e, d, prior)
    if d == 0:
        row(
            "generalization gap (Thudi, Corollary 3)",
            bounds.generalization_gap(e, loss_bound),
            extra=f"loss within [0, {loss_bound:g}]; between records of the pool in and out of the training set",
            p=None,
        )
    if keep is not None:
        _both_secrets(row, e, d, prior, keep)
    return rows


def _earlier(row: Any, e: float, d: float, prior: float) -> None:
    half = "stated for prior 1/2"
    row("accuracy, Erlingsson et al. 2019", bounds.erlingsson_accuracy(e, d), extra=half, p=0.5)
    if d == 0:
        row("positive accuracy, Sablayrolles et al. 2019", bounds.sablayrolles_positive_accuracy(e, prior))
        row("accuracy, Yeom et al. 2020", bounds.yeom_accuracy(e), extra=half, p=0.5)


def _both_secrets(row: Any, e: float, d: float, prior: float, keep: float) -> None:
    secret = f"each record of the pool is kept with probability {keep:g}, and which ones stays secret"
    if d:
        pool = EpsilonDelta(bounds.pool_epsilon(e, keep), keep * d)
        row("accuracy, membership in the pool", pool.accuracy(prior), extra=secret)
        own = bounds.training_prior(prior, keep)
        row("accuracy, membership in the training set", EpsilonDelta(e, d).accuracy(own), extra=secret, p=own)
        return
    own = bounds.training_prior(prior, keep)
    row(
        "positive accuracy, membership in the training set",
        bounds.positive_accuracy(e, own)[1],
        extra=f"{secret}; prior {prior:g} of being in the pool",
        p=own,
    )
    pooled = bounds.pool_epsilon(e, keep)
    row(
        "positive accuracy, membership in the pool",
        bounds.positive_accuracy(pooled, prior)[1],
        extra=f"{secret}; epsilon is ln(1 + s(e^eps - 1)) = {pooled:.4g}",
    )


def _adjacency(adjacency: str, inclusion: str) -> str:
    if adjacency == "replace_one":
        return "the guarantee compares data sets that differ in one record replaced"
    if inclusion == "fixed_size":
        return (
            "the guarantee compares data sets that differ in one record added or removed; a known size means two such "
            "steps, so epsilon counts twice"
        )
    return "the guarantee compares data sets that differ in one record added or removed"
