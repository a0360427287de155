"""Thudi et al. (2022), Figures 1 to 7: what the gate's own bounds give, each figure a picture."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from papers.pictures import Picture, Series
from papers.table import Row, Table
from privgate.claims.bounds import Gaussian, positive_accuracy
from privgate.training.fleet import Fleet

#: priors and epsilons of curves; the stored text of the paper has lost its own
PRIORS, EPSILONS = (0.01, 0.1, 0.5, 0.9), (0.5, 1.0, 2.0, 4.0)
#: noise of the one Gaussian step; the text has lost the paper's
SIGMA = 2.0
LOST = "formulas and numbers of the figure are lost in the stored text; its curves are drawn from the theorem"
Curve = Callable[[float], float]
Float = NDArray[np.float64]


def run(folder: Path, fleet: Fleet | None, say: Callable[[str], None]) -> Iterator[Table]:
    """Return the seven figures."""
    del folder, fleet, say
    p, e, x = np.linspace(0.01, 0.99, 99), np.linspace(0.05, 6, 120), np.linspace(0.02, 1, 99)
    yield figure("1: two amplifications",
                 [Row("1/p - 1 at p = 0.1", None, 9.0), Row("exp(-q) at q = 0.1", None, math.exp(-0.1))],
                 Picture("thudi-1", "share of records kept, or of a batch", "what is added to 1 in the bound",
                         [line("1/p - 1, records kept", x, lambda q: 1 / q - 1),
                          line("exp(-q), batches", x, lambda q: math.exp(-q))]))  # fmt: skip
    yield figure_2(e)
    yield figure("3: positive accuracy against the prior",
                 [Row(f"p = {q:g}, epsilon = {v:g}", None, positive_accuracy(v, q))
                  for q in PRIORS for v in EPSILONS],
                 Picture("thudi-3", "prior p", "largest positive accuracy",
                         [line(f"epsilon = {v:g}", p, partial(ours, epsilon=v)) for v in EPSILONS]))  # fmt: skip
    yield figure_4()
    theirs = sablayrolles
    yield figure("5: Theorem 1 and Sablayrolles",
                 [Row("smallest lead of Theorem 1 on the drawn grid", None,
                      min(theirs(v, q) - ours(q, epsilon=v) for q in p for v in e))],
                 Picture("thudi-5", "epsilon, nats", "largest positive accuracy",
                         [one for q in PRIORS[1:] for one in (
                             line(f"Theorem 1, p = {q:g}", e, partial(ours, q)),
                             line(f"Sablayrolles, p = {q:g}", e, partial(theirs, prior=q)))]))  # fmt: skip
    lead = [Series(f"epsilon = {v:g}", p.tolist(), [ours(float(q), v) - float(q) for q in p]) for v in EPSILONS]
    yield figure("6: advantage against the prior", [row for v in EPSILONS for row in largest_advantage(v)],
                 Picture("thudi-6", "prior p", "positive accuracy less p", lead),
                 "the largest advantage is tanh(epsilon/4), at the prior 1/(1 + exp(epsilon/2))", LOST)  # fmt: skip
    yield figure_7()


def figure(what: str, rows: list[Row], picture: Picture, *notes: str) -> Table:
    """Return one figure as a table with its picture."""
    return Table(f"Thudi et al. (2022), Figure {what}", rows, notes or (LOST,), picture)


def ours(prior: float, epsilon: float) -> float:
    """Return Theorem 1's largest positive accuracy."""
    return positive_accuracy(epsilon, prior)


def erlingsson(epsilon: float) -> float:
    """Return the bound of Erlingsson et al. (2019) on accuracy at the prior 1/2."""
    return 1 - math.exp(-epsilon) / 2


def sablayrolles(epsilon: float, prior: float) -> float:
    """Return the bound of Sablayrolles et al. (2019) on positive accuracy; sigma' <= 1/4 implies it."""
    return min(1.0, prior + epsilon / 4)


def figure_2(e: Float) -> Table:
    """Return Figure 2: three bounds on accuracy, at the prior 1/2."""
    bounds: dict[str, Curve] = {
        "Thudi, Theorem 1": partial(ours, 0.5),
        "Erlingsson": erlingsson,
        "Sablayrolles": partial(sablayrolles, prior=0.5),
    }
    printed = {1.0: (0.7311, 0.8161, 0.75), 2.0: (0.8808, 0.9323, 1.0)}
    rows = [Row(f"{name}: epsilon = {v:g}", None, f(v), due=due) for v, dues in printed.items()
            for (name, f), due in zip(bounds.items(), dues, strict=True)]  # fmt: skip
    dots = Series("published", [v for v in printed for _ in bounds], [d for dues in printed.values() for d in dues],
                  "dots")  # fmt: skip
    return figure("2: bounds on accuracy, p = 1/2", rows,
                  Picture("thudi-2", "epsilon, nats", "largest accuracy",
                          [*(line(name, e, f) for name, f in bounds.items()), dots]),
                  "due: section 6.1 as a reference has it; the stored text lost its numbers")  # fmt: skip


def line(name: str, x: Float, of: Curve) -> Series:
    """Return a closed form as a curve."""
    return Series(name, x.tolist(), [of(float(v)) for v in x])


def largest_advantage(epsilon: float) -> tuple[Row, Row]:
    """Return where positive accuracy leads the prior most, searched, beside the closed form."""
    p = np.linspace(1e-4, 1 - 1e-4, 20_001)
    lead = [ours(float(q), epsilon) - float(q) for q in p]
    best = int(np.argmax(lead))
    closed = 1 / (1 + math.exp(epsilon / 2))
    return (
        Row(f"epsilon = {epsilon:g}: largest advantage", None, lead[best], f"tanh: {math.tanh(epsilon / 4):.4f}"),
        Row(f"epsilon = {epsilon:g}: at the prior", None, float(p[best]), f"closed form: {closed:.4f}"),
    )


def step(tau: float, prior: float = 0.5) -> tuple[float, float]:
    """Return positive accuracy and accuracy of who says member where the weight is at most ``tau`` (section 6.3)."""
    from scipy.special import ndtr

    hit, wrong = float(ndtr((tau + 1) / SIGMA)), float(ndtr(tau / SIGMA))
    return prior * hit / (prior * hit + (1 - prior) * wrong), prior * hit + (1 - prior) * (1 - wrong)


def figure_4() -> Table:
    """Return Figure 4: one Gaussian step bounds accuracy and not positive accuracy."""
    tau = np.linspace(-16, 8, 121)
    limit = Gaussian(1 / SIGMA).accuracy(0.5)
    reached = max(step(float(t))[1] for t in tau)
    rows = [Row("largest accuracy on the grid", None, reached, f"limit of 1/sigma-GDP: {limit:.4f}"),
            Row("positive accuracy at tau = -8", None, step(-8.0)[0]),
            Row("positive accuracy at tau = -16", None, step(-16.0)[0])]  # fmt: skip
    curves = [line("(a) positive accuracy", tau, lambda t: step(t)[0]), line("(b) accuracy", tau, lambda t: step(t)[1]),
              line("limit of accuracy, GDP", tau, lambda _: limit)]  # fmt: skip
    return figure(f"4: one Gaussian step, sigma = {SIGMA:g}", rows,
                  Picture("thudi-4", "limit tau of the weight", "accuracy", curves))  # fmt: skip


def capacity(epsilon: float, prior: float, rho: float) -> float:
    """Return Corollary 2's number of deletions, before rounding down."""
    return math.log(1 / rho) / -math.log1p(-positive_accuracy(epsilon, prior))


def figure_7() -> Table:
    """Return Figure 7: deletions against the expected size of the training set, pool fixed."""
    pool, epsilon, rho = 100_000, 1.0, 0.9
    sizes = np.geomspace(10, pool / 2, 60)
    rows = [Row(f"p = {p:g}, rho = {r:g}: deletions", None, math.floor(capacity(1.0, p, r)))
            for p in (0.001, 0.01, 0.5) for r in (0.9, 0.5)]  # fmt: skip
    corollary = line("Corollary 2", sizes, lambda n: capacity(epsilon, n / pool, rho))
    linear = Series("n / 1000, linear", sizes.tolist(), (sizes / 1000).tolist())
    notes = (f"pool of {pool} records, epsilon = {epsilon:g}, rho = {rho:g}; the factor of the line is ours", LOST)
    return figure("7: deletions", rows, Picture("thudi-7", "expected size n of the training set", "deletions",
                                                [corollary, linear], logarithmic=True), *notes)  # fmt: skip
