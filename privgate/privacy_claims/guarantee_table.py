"""Every bound of one guarantee side by side, and the figures of Thudi et al. (2022)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privgate.errors import MeasurementError
from privgate.evidence import Evidence
from privgate.privacy_claims import tradeoff
from privgate.privacy_claims.accountant import Mechanism, deletion_capacity, recompute
from privgate.privacy_claims.tradeoff import EpsilonDelta, Tradeoff

# Every bound of one guarantee, side by side, each with its hypotheses in words.

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
    e, d = tradeoff.effective_guarantee(epsilon, delta, adjacency=adjacency, inclusion=inclusion)
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
        row("positive accuracy (Thudi, Theorem 1)", tradeoff.positive_accuracy(e, prior)[1])
        row("negative accuracy (Thudi, Corollary 1)", tradeoff.negative_accuracy(e, prior)[1])
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
                extra=f"tests that wrongly accuse at least {f:g} of candidates; rarer tests may be more certain",
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
            tradeoff.generalization_gap(e, loss_bound),
            extra=f"loss within [0, {loss_bound:g}]; between records of the pool in and out of the training set",
            p=None,
        )
    if keep is not None:
        _both_secrets(row, e, d, prior, keep)
    return rows


def _earlier(row: Any, e: float, d: float, prior: float) -> None:
    half = "stated for prior 1/2"
    row("accuracy, Erlingsson et al. 2019", tradeoff.erlingsson_accuracy(e, d), extra=half, p=0.5)
    if d == 0:
        row("positive accuracy, Sablayrolles et al. 2019", tradeoff.sablayrolles_positive_accuracy(e, prior))
        row("accuracy, Yeom et al. 2020", tradeoff.yeom_accuracy(e), extra=half, p=0.5)


def _both_secrets(row: Any, e: float, d: float, prior: float, keep: float) -> None:
    secret = f"each record of the pool is kept with probability {keep:g}, and which ones stays secret"
    if d:
        pool = EpsilonDelta(tradeoff.pool_epsilon(e, keep), keep * d)
        row("accuracy, membership in the pool", pool.accuracy(prior), extra=secret)
        own = tradeoff.training_prior(prior, keep)
        row("accuracy, membership in the training set", EpsilonDelta(e, d).accuracy(own), extra=secret, p=own)
        return
    own = tradeoff.training_prior(prior, keep)
    row(
        "positive accuracy, membership in the training set",
        tradeoff.positive_accuracy(e, own)[1],
        extra=f"{secret}; prior {prior:g} of being in the pool",
        p=own,
    )
    pooled = tradeoff.pool_epsilon(e, keep)
    row(
        "positive accuracy, membership in the pool",
        tradeoff.positive_accuracy(pooled, prior)[1],
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


# Figures 2, 3, 5, 6 and 7 of Thudi et al. (2022), and a trade-off curve with measured attacks under it.
#
# The printed figures fix constants that the available text has lost; ours are named in each title.

Drawing = Callable[[Any], None]

EPSILONS = np.linspace(0, 8, 161)
PRIORS = (0.5, 0.1, 0.01, 0.001)  # shares of members that an adversary may assume


def draw(out: Path) -> list[Path]:
    """Write all figures of the paper below ``out`` and return their paths."""
    drawings: dict[str, Drawing] = {
        "thudi-figure-2": comparison,
        "thudi-figure-3": positive_accuracy,
        "thudi-figure-5": against_sablayrolles,
        "thudi-figure-6": advantage_by_prior,
        "thudi-figure-7": capacity_by_size,
        "trade-off": tradeoff_with_attacks,
    }
    return [_written(out, name, drawing) for name, drawing in drawings.items()]


def draw_report(evidence: Evidence, out: Path) -> Path:
    """Write the trade-off curve of a judged model with the attacks that were measured on it.

    Parameters
    ----------
    evidence : Evidence
        What a report rests on.
    out : Path
        Folder.

    Raises
    ------
    MeasurementError
        The report holds no curve: no rule asked for the guarantee, or there is none.
    """
    claims, attacks = evidence.claims, evidence.membership
    if claims is None or claims.curve is None:
        raise MeasurementError("the report holds no trade-off curve; check with a policy that has a rule dp_epsilon")

    curve = claims.curve

    def drawing(axes: Any) -> None:
        axes.plot(curve.fpr, curve.tpr, label="bound of the observed mechanism")
        axes.plot([1e-4, 1], [1e-4, 1], ":", color="gray", label="guessing")
        for attack in () if attacks is None else attacks.attacks:
            if attack.figures is not None:
                points = np.array(attack.figures.roc, dtype=np.float64).reshape(-1, 2)
                axes.plot(*points[(points > 0).all(axis=1)].T, ".", markersize=3, label=attack.name[:30])
        for point in claims.points:
            axes.plot([point.fpr], [point.tpr], "kx", label=point.name[:30])
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(1e-4, 1.1)
        _label(axes, "false-positive rate", "true-positive rate", "What attacks reached, and what any attack can reach")

    return _written(out, "measured-trade-off", drawing)


def _written(out: Path, name: str, drawing: Drawing) -> Path:
    """Draw one picture as SVG; the same picture is the same file."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as exc:
        raise MeasurementError("figures need matplotlib; install it with pip install matplotlib") from exc
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.svg"
    with mpl.rc_context({"svg.hashsalt": "privgate", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}):
        figure = Figure(figsize=(5.2, 3.6), layout="constrained")
        drawing(figure.subplots())
        figure.savefig(path, metadata={"Date": None})
    return path


def comparison(axes: Any) -> None:
    """Figure 2: our bound on accuracy at p = ½ beside the earlier ones."""
    axes.plot(EPSILONS, [tradeoff.accuracy(e, 0.5) for e in EPSILONS], label="Thudi et al., Theorem 1")
    axes.plot(EPSILONS, [tradeoff.erlingsson_accuracy(e) for e in EPSILONS], "--", label="Erlingsson et al.")
    axes.plot(EPSILONS, [tradeoff.sablayrolles_positive_accuracy(e, 0.5) for e in EPSILONS], "-.", label="Sablayrolles")
    axes.plot(EPSILONS, [tradeoff.yeom_accuracy(e) for e in EPSILONS], ":", label="Yeom et al.")
    _label(axes, "ε (nats)", "accuracy at most", "Accuracy of any attack, p = ½, pure ε-DP (figure 2)")


def positive_accuracy(axes: Any) -> None:
    """Figure 3: positive accuracy against ε for several priors."""
    for p in PRIORS:
        axes.plot(EPSILONS, [tradeoff.positive_accuracy(e, p)[1] for e in EPSILONS], label=f"p = {p:g}")
    _label(axes, "ε (nats)", "positive accuracy at most", "Positive accuracy by prior (figure 3)")


def against_sablayrolles(axes: Any) -> None:
    """Figure 5: ours beside Sablayrolles et al. for several priors."""
    for k, p in enumerate((0.5, 0.1, 0.01)):
        axes.plot(EPSILONS, [tradeoff.positive_accuracy(e, p)[1] for e in EPSILONS], f"C{k}-", label=f"p = {p:g}")
        theirs = [tradeoff.sablayrolles_positive_accuracy(e, p) for e in EPSILONS]
        axes.plot(EPSILONS, theirs, f"C{k}--", label=f"p = {p:g}, Sablayrolles")
    _label(axes, "ε (nats)", "positive accuracy at most", "Beside Sablayrolles et al. (figure 5)")


def advantage_by_prior(axes: Any) -> None:
    """Figure 6: gain of positive accuracy over the prior, against the prior."""
    priors = np.linspace(0.001, 0.999, 400)
    for e in (0.5, 1, 2, 4):
        axes.plot(priors, [tradeoff.positive_accuracy(e, p)[1] - p for p in priors], label=f"ε = {e:g}")
    _label(axes, "prior p", "positive accuracy - p at most", "Positive advantage by prior (figure 6)")


def capacity_by_size(axes: Any) -> None:
    """Figure 7: deletion capacity against expected training size, beside a linear trend; ε = 1, ρ = 0.8, N = 50,000."""
    pool, rho, epsilon = 50_000, 0.8, 1.0
    sizes = np.unique(np.geomspace(5, pool / 2, 120).astype(int))
    ours = [deletion_capacity(epsilon, n / pool, rho).records for n in sizes]
    axes.plot(sizes, np.maximum(ours, 0.5), label=f"ours, ε = {epsilon:g}, ρ = {rho:g}, pool {pool:,}")
    axes.plot(sizes, 1e-2 * sizes, "--", label="linear trend (Sekhari et al.), height arbitrary: 0.01 n")
    axes.set_xscale("log")
    axes.set_yscale("log")
    _label(axes, "expected training size", "records", "Deletion capacity (figure 7); below 1 is none")


def tradeoff_with_attacks(axes: Any) -> None:
    """Trade-off curve of a DP-SGD with the most powerful simulated attack under it."""
    mechanism = Mechanism(1.0, 0.1, 30, "poisson", "add_remove")
    found = recompute(mechanism, 1e-5)
    curve = found.curve
    assert curve is not None  # noqa: S101  the mechanism above adds noise
    fprs, tprs = simulated_attack(mechanism, np.random.default_rng(0))
    plot_tradeoff(axes, curve, [(f, t) for f, t in zip(fprs, tprs, strict=True)])
    known = EpsilonDelta(found.epsilon, found.delta)
    grid = np.geomspace(1e-4, 1, 200)
    axes.plot(grid, [known.tpr(f) for f in grid], "--", label=f"({found.epsilon:.3g}, 1e-05)-DP alone")
    axes.legend()


def plot_tradeoff(axes: Any, curve: Tradeoff, points: Sequence[tuple[float, float]]) -> None:
    """Draw a trade-off curve and attacks as (FPR, TPR) points, on logarithmic axes."""
    grid = np.geomspace(1e-4, 1, 200)
    axes.plot(grid, [curve.tpr(f) for f in grid], label=f"bound: {curve.name}")
    axes.plot(grid, grid, ":", color="gray", label="guessing")
    if points:
        axes.plot(*np.array(points).T, "k.", markersize=4, label="measured attacks")
    axes.set_xscale("log")
    axes.set_yscale("log")
    _label(axes, "false-positive rate", "true-positive rate at most", "What any attack can reach")


def simulated_attack(
    mechanism: Mechanism, rng: np.random.Generator, *, runs: int = 100_000
) -> tuple[list[float], list[float]]:
    """Return FPR and TPR of the likelihood-ratio test on the worst case of a Poisson-sampled Gaussian.

    The record's clipped gradient is the only one, its sum is 1 in the steps that drew it and 0 in the others.
    """
    sigma, q, steps = mechanism.noise_multiplier, mechanism.sample_rate, mechanism.steps
    scores = []
    for member in (False, True):
        total = np.zeros(runs)
        for _ in range(steps):
            w = rng.normal(0, sigma, runs) + (member * (rng.random(runs) < q))
            total += np.log1p(q * np.expm1((2 * w - 1) / (2 * sigma**2)))
        scores.append(total)
    cuts = np.quantile(scores[0], 1 - np.geomspace(4e-3, 0.9, 20))
    return [float((scores[0] > c).mean()) for c in cuts], [float((scores[1] > c).mean()) for c in cuts]


def _label(axes: Any, x: str, y: str, title: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title, fontsize=9)
    axes.legend(fontsize=7)
