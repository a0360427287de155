"""The release: what one query to the deployed model returns, and how far two releases can be told apart.

A release is judged beside exact probabilities, never instead of them: DTP is not monotone under post-processing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np

from privgate.arrays import Bool, Float
from privgate.statistics import leakage

Form = Literal["probabilities", "rounded", "binned", "top_k", "label"]
#: what MLflow is made to serve of a model that was logged otherwise
Serve = Literal["probabilities"]

#: relative; what a probability loses on its way to a rounding: one logarithm and back, or single precision
HAIR = 2.0**-22
#: nats; labels that are no further apart than rounding may change places when they are heated, or lost a last digit
TIED = 1e-12
#: nats; below exp(-708) float64 loses digits, and below exp(-746) nothing but 0 is left
SUBNORMAL, NOTHING = -708.0, -746.0
#: -ln of the least number above 0
_UNIT = 1074 * np.log(2.0)


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise of a ``scale`` in the unit of the targets, added afresh to each answer of a regressor's endpoint."""

    scale: float
    #: name of the law, to numpy and to scipy
    laws: ClassVar[tuple[str, str]]

    def __post_init__(self) -> None:
        if not 0 < self.scale < float("inf"):
            raise ValueError(f"release: the scale of noise must be finite and above 0, not {self.scale!r}")

    def drawn(self, size: int) -> Float:
        """Return fresh noise from the system's own randomness, shape (size,)."""
        return np.asarray(getattr(np.random.default_rng(), self.laws[0])(0.0, self.scale, size))

    @property
    def deviation(self) -> float:
        """Standard deviation, in the unit of the targets."""
        return self.scale * (float(np.sqrt(2.0)) if self.laws[1] == "laplace" else 1.0)


class Laplace(Noise):
    """Noise with density ``exp(-|z| / scale) / (2 scale)``: an answer that moves by d changes by d / scale nats."""

    __slots__ = ()
    laws = ("laplace", "laplace")


class Gaussian(Noise):
    """Normal noise of standard deviation ``scale``: no change of the log-density is bounded over all answers."""

    __slots__ = ()
    laws = ("normal", "norm")


_NOISES = {"laplace": Laplace, "gaussian": Gaussian}


@dataclass(frozen=True, slots=True)
class Release:
    """What the endpoint hands out for one query.

    Parameters
    ----------
    form : {"probabilities", "rounded", "binned", "top_k", "label"}
        Exact probabilities by default; the others are measured in addition to exact ones, never instead.
    step : float
        Rounding step or bin width, for "rounded" and "binned".
    k : int
        Number of labels listed, for "top_k".
    temperature : float
        Logits are divided by it before the softmax; 1 leaves them.
    noise : Noise, optional
        Of a regressor: added to every answer.
    floor : bool, float, mapping or tuple
        No label is answered below it: max(floor, c p), with the one c that makes the sum 1. True is min(.01, 1/(20 K));
        a mapping names labels of rare events, whose rate is declared and not read off the data. 0 for none.
    alone : bool
        The operator states that no user gets the file: only released answers count, not exact numbers in the file.
    """

    form: Form = "probabilities"
    step: float = 0.01
    k: int = 1
    temperature: float = 1.0
    noise: Noise | None = None
    floor: bool | float | Mapping[Any, float] | tuple[float, ...] = 0.0
    alone: bool = False

    def __post_init__(self) -> None:
        shaped, forms = self.form != "probabilities" or self.temperature != 1.0, get_args(Form)
        odd, altered = self.floor == {} or isinstance(self.floor, str | list), self.form != forms[0] or self.noise
        problems = {
            f"step must lie in (0, 1), not {self.step!r}": not 0 < self.step < 1,
            f"no form {self.form!r}; it is one of {', '.join(forms)}": self.form not in forms,
            f"k must be a whole number of at least 1, not {self.k!r}": self.k != int(self.k) or self.k < 1,
            f"temperature must be finite and above 0, not {self.temperature!r}": not 0 < self.temperature < np.inf,
            "noise is for a regressor's answers, which have no form or temperature": self.noise is not None and shaped,
            f"floor is True, a number or a mapping, not {self.floor!r}": odd,
            "a floor is for probabilities that are neither rounded, listed nor noisy": self.floor and altered,
        }
        if problem := next((text for text, holds in problems.items() if holds), ""):
            raise ValueError(f"release: {problem}")

    def resolved(self, classes: Any) -> Self:
        """Return the release with a floor for each of the sorted labels; ``ValueError``: not above 0, or too much."""
        if not self.floor:
            return self
        labels, usual = np.asarray(classes).tolist(), min(0.01, 1 / (20 * len(classes)))
        named = self.floor if isinstance(self.floor, Mapping) else {}
        if odd := [k for k in named if k not in labels]:
            raise ValueError(f"release: the floor names a label {odd[0]!r} that the data do not have")
        one = float(self.floor) if isinstance(self.floor, float | int) and self.floor is not True else usual
        floors = self.floor if isinstance(self.floor, tuple) else tuple(float(named.get(k, one)) for k in labels)
        most = 0.1 / max(1, len(labels) - 1)
        if not (len(floors) == len(labels) and min(floors) > 0 and sum(floors) - min(floors) <= 0.1 * (1 + 1e-12)):
            raise ValueError(f"release: floors are above 0, one a label, at most {most:.3g} each and .1 in all but one")
        return replace(self, floor=floors)

    def answered(self, values: Float) -> Float:
        """Return what the endpoint hands out for a regressor's answers, shape (n,)."""
        values = np.asarray(values, dtype=np.float64)
        return values if self.noise is None else np.asarray(values + self.noise.drawn(len(values)))

    def shown(self, p: Float) -> Float:
        """Return what the endpoint hands out for exact probabilities ``p``, both of shape (n, K)."""
        p = np.asarray(p, dtype=np.float64)
        if self.temperature != 1.0:
            with np.errstate(divide="ignore"):
                p = np.exp(heated(np.log(p), self.temperature))
        if self.form in ("rounded", "binned"):
            return self.coarse(p)
        if self.floor:
            return floored(p, np.array(self.floor))
        return p if self.form == "probabilities" else self.listed(p, 1.0, 0.0)

    def coarse(self, p: Float) -> Float:
        """Return multiples of ``step`` nearest to ``p``, halves to the even one, or the centres of its bins."""
        if self.form == "binned":  # a hair of tolerance keeps 0.29 / 0.01 in its own bin
            last = np.ceil(1.0 / self.step - 1e-9) - 1  # which holds probability 1 too
            return np.asarray((np.minimum(np.floor(p / self.step + 1e-12), last) + 0.5) * self.step)
        per_one = 1.0 / self.step
        whole = np.rint(per_one)
        # np.round(p, 2) multiplies by 100 and divides by it; 0.01 itself is not a hundredth
        if abs(per_one - whole) < 1e-9 * per_one:
            return np.asarray(np.rint(p * whole) / whole)
        return np.asarray(np.rint(p / self.step) * self.step)

    def list_size(self, n_labels: int) -> int:
        """Return how many of so many labels are listed."""
        return 1 if self.form == "label" else min(self.k, n_labels)

    def listed(self, scores: Float, only: float, nothing: float) -> Float:
        """Return scores of listed labels, ``nothing`` for others, shape (..., K); ``only`` for the one of "label"."""
        order = np.argsort(-scores, axis=-1, kind="stable")[..., : self.list_size(scores.shape[-1])]
        values = np.take_along_axis(scores, order, axis=-1)
        out = np.full(scores.shape, nothing)
        np.put_along_axis(out, order, np.full(order.shape, only) if self.form == "label" else values, axis=-1)
        return out

    @property
    def exact(self) -> bool:
        """Whether exact probabilities leave the endpoint."""
        return self.form == "probabilities" and self.temperature == 1.0 and self.noise is None and not self.floor

    def payload(self) -> dict[str, Any]:
        """Return JSON values; noise only where there is some."""
        stated = {k: getattr(self, k) for k in ("form", "step", "k", "temperature")}
        if self.floor:
            stated |= {"floor": self.floor, **({"alone": True} if self.alone else {})}
        if self.noise is not None:
            stated["noise"] = {"kind": type(self.noise).__name__.lower(), "scale": self.noise.scale}
        return stated

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> Self:
        """Return the release that ``payload`` describes."""
        stated, floor = payload.get("noise"), payload.get("floor", 0.0)
        noise = None if stated is None else _NOISES[stated["kind"]](float(stated["scale"]))
        floor = tuple(floor) if isinstance(floor, list) else floor
        return cls(**{**payload, "noise": noise, "floor": floor, "alone": False})  # which only who checks may state


def floored(p: Float, floor: Float) -> Float:
    """Return max(floor, c p) of probabilities (n, K), with the one c for each row that makes the sum 1."""
    low = np.zeros(p.shape, dtype=bool)
    while True:
        with np.errstate(divide="ignore", invalid="ignore"):
            c = (1 - np.where(low, floor, 0.0).sum(axis=-1)) / np.where(low, 0.0, p).sum(axis=-1)
        scaled = c[..., None] * p
        more = low | (scaled < floor)
        if (more == low).all():
            return np.asarray(np.where(low, floor, scaled))
        low = more


def released(log_p: Float, release: Release) -> Float:
    """Return the natural logarithm of what the endpoint hands out for each label, shape (..., K).

    It is that of ``Release.shown`` for the exact natural log-probabilities ``log_p``, but without its underflow:
    ``-inf`` where a label gets 0 or is not listed (docs/mathematics.md, section 11).
    """
    log_q = heated(log_p, release.temperature)
    if release.floor:
        return np.log(floored(np.exp(log_q), np.array(release.floor)))
    if release.form in ("rounded", "binned"):
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(release.coarse(np.exp(log_q))))
    return log_q if release.form == "probabilities" else release.listed(log_q, 0.0, -np.inf)


def heated(log_p: Float, temperature: float) -> Float:
    """Return log-probabilities after the logits were divided by ``temperature``; a probability of 0 stays 0."""
    if temperature == 1.0:
        return np.asarray(log_p, dtype=np.float64)
    scaled = np.asarray(log_p, dtype=np.float64) / temperature
    total = np.logaddexp.reduce(scaled, axis=-1, keepdims=True)
    return np.asarray(scaled - np.where(np.isneginf(total), 0.0, total))


def measure_changes(log_with: Float, log_without: Float, release: Release) -> Float:
    """Return the largest label change of what is released, shape (...,), nats."""
    return leakage.largest_change(released(log_with, release), released(log_without, release))


def without_digits(log_with: Float, log_without: Float) -> Float:
    """Return the largest change, shape (...,), nats, of probabilities that float64 holds in part, else 0."""
    small = np.minimum(log_with, log_without) < SUBNORMAL
    apart = _apart(_held(log_with), _held(log_without))[1]
    return np.asarray(np.where(small & (log_with != log_without), apart, 0.0).max(axis=-1))


def _held(log_p: Float) -> tuple[Float, Float]:
    """Return the lowest and highest logarithm of what float64 may make of a probability that it holds in part."""
    units = np.exp(np.minimum(log_p, SUBNORMAL) + _UNIT)  # how many times the least number above 0
    with np.errstate(divide="ignore"):
        low, high = (np.log(np.where(log_p < NOTHING, 0.0, np.maximum(units + k, 0.0))) - _UNIT for k in (-1.0, 1.0))
    return np.where(log_p < SUBNORMAL, low, log_p), np.where(log_p < SUBNORMAL, high, log_p)


def bound_changes(log_with: Float, log_without: Float, release: Release) -> tuple[Float, Float]:
    """Return the smallest and the largest change of what real models release, shape (...,), nats.

    Halves (0.125 in hundredths), values on an edge of a bin, and ties for the last place of a list are resolved one way
    by one endpoint and another way by the next; the worst of both counts. Two models that give exactly the same
    log-probability release the same, though two probabilities a few bits apart may share their logarithm.
    ``FloatingPointError``: a log-probability is NaN.
    """
    if np.isnan(log_with).any() or np.isnan(log_without).any():
        raise FloatingPointError("NaN log-probabilities: an engine failure, not a zero")
    models = (np.asarray(log_with, dtype=np.float64), np.asarray(log_without, dtype=np.float64))
    one, other = (_values(m, release) for m in models)
    same = models[0] == models[1]
    if release.temperature != 1.0:
        same = same.all(axis=-1, keepdims=True)
    small, large = (np.where(same, 0.0, distance) for distance in _apart(one, other))
    if release.form in ("top_k", "label"):
        small, large = _with_lists((small, large), models, (one[1], other[1]), release)
    return small.max(axis=-1), large.max(axis=-1)


def _values(log_p: Float, release: Release, error: float = 0.0) -> tuple[Float, Float]:
    """Return the lowest and highest logarithm of the value of each label, were every label listed."""
    log_q = heated(log_p, release.temperature)
    if release.form == "label":
        return np.zeros(log_q.shape), np.zeros(log_q.shape)
    # heated, ln q_y = -ln sum_c exp((l_c - l_y) / T), and each difference moves by at most 2 e
    margin = error if release.temperature == 1.0 else 2 * error / release.temperature
    if release.floor:  # where each label moves by a factor at most, so does what makes the sum 1
        low, answers = np.log(np.array(release.floor)), released(log_p, release)
        return np.maximum(answers - 2 * margin, low), np.minimum(answers + 2 * margin, 0.0)
    nothing = np.isneginf(log_p)
    log_q = np.where(nothing, NOTHING, log_q)
    low, high = log_q - margin, np.minimum(log_q + margin, 0.0)
    high = np.where(high < SUBNORMAL, high + np.log(2.0), high)  # the last bit may be half of what is left
    low = np.where(nothing | (log_p - error < SUBNORMAL) | (low < SUBNORMAL), -np.inf, low)
    high = np.where(nothing | (high < NOTHING), -np.inf, high)
    if release.form in ("rounded", "binned"):
        with np.errstate(divide="ignore"):
            low, high = (np.log(release.coarse(np.exp(v) * hair)) for v, hair in ((low, 1 - HAIR), (high, 1 + HAIR)))
    return low, high


def _apart(one: tuple[Float, Float], other: tuple[Float, Float]) -> tuple[Float, Float]:
    """Return the smallest and the largest distance of two values from two ranges; that of 0 from 0 is 0."""
    with np.errstate(invalid="ignore"):
        farthest = np.fmax(one[1] - other[0], other[1] - one[0])
        nearest = np.fmax(one[0] - other[1], other[0] - one[1])
    return np.fmax(nearest, 0.0), np.fmax(farthest, 0.0)


def _with_lists(
    apart: tuple[Float, Float], models: tuple[Float, Float], highest: tuple[Float, Float], release: Release
) -> tuple[Float, Float]:
    """Return changes of listed labels, infinite where one model alone lists a label that has a probability."""
    small, large = apart
    seen = ~np.isneginf(highest).all(axis=0) & ~np.isneginf(models).all(axis=0)
    seen &= ~(models[0] == models[1]).all(axis=-1)[..., None]
    (may, must), (may_too, must_too) = (_listed(m, release, TIED) for m in models)
    alone, surely = (may & ~must_too) | (may_too & ~must), (must & ~may_too) | (must_too & ~may)
    largest = np.where(alone & seen, np.inf, np.where(may & may_too, large, 0.0))
    return np.where(surely & seen, np.inf, np.where(must & must_too, small, 0.0)), largest


def _listed(log_p: Float, release: Release, error: float) -> tuple[Bool, Bool]:
    """Return which labels may be listed, and which certainly are; of equal ones each may, and none is for certain."""
    k = release.list_size(log_p.shape[-1])
    if k == log_p.shape[-1]:
        return np.ones(log_p.shape, dtype=bool), np.ones(log_p.shape, dtype=bool)
    low, high = (np.where(np.isneginf(log_p), -np.inf, log_p + side) for side in (-error, error))
    return high >= np.sort(low, axis=-1)[..., [-k]], low > np.sort(high, axis=-1)[..., [-k - 1]]


def admissible(values: Float, log_p: Float, release: Release, error: float) -> Bool:
    """Return for which answers each value may be what a release hands out, shape (...,).

    ``values`` of shape (..., K) were handed out, 0 for a label that is not listed; ``log_p`` are exact natural
    log-probabilities. ``error`` bounds the error of each of these and the relative error of each value; above 0.
    """
    low, high = _values(log_p, release, error)
    with np.errstate(divide="ignore", invalid="ignore"):
        handed = np.log(values)
    fits = (handed >= low - error) & (handed <= high + error)
    if release.form in ("top_k", "label"):
        may, must = _listed(log_p, release, max(error, TIED))
        return np.asarray(np.where(values == 0, ~must | np.isneginf(low), may & fits).all(axis=-1))
    return np.asarray(fits.all(axis=-1))
