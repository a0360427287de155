"""The release: what one query to the deployed model returns, and how far two releases can be told apart.

A release is judged beside exact probabilities, never instead of them: DTP is not monotone under post-processing. A
coarser answer can tell more (two probabilities on both sides of a bin's edge) or hide what an exact one tells.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np

from privgate.arrays import Bool, Float
from privgate.statistics import leakage

Form = Literal["probabilities", "label"]
#: what MLflow is made to serve of a model that was logged otherwise
Serve = Literal["probabilities"]

#: nats; labels that are no further apart than rounding may change places
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

    def below(self, noise: Float) -> Float:
        """Return the probability of less noise than that."""
        from scipy import stats

        return np.asarray(getattr(stats, self.laws[1]).cdf(noise / self.scale), dtype=np.float64)

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


#: what earlier versions could declare: digests are of these too
_USUAL = {"step": 0.01, "k": 1, "temperature": 1.0}
_NOISES = {"laplace": Laplace, "gaussian": Gaussian}


@dataclass(frozen=True, slots=True)
class Release:
    """What the endpoint hands out for one query.

    Parameters
    ----------
    form : {"probabilities", "label"}
        Exact probabilities by default; the likeliest label is measured in addition to them, never instead.
    noise : Noise, optional
        Of a regressor: added to every answer.
    floor : bool, float, mapping or tuple
        No label is answered below it: max(floor, c p), with the one c that makes the sum 1. True is min(.01, 1/(20 K));
        a mapping names labels of rare events, whose rate is declared and not read off the data. 0 for none.
    alone : bool
        The operator states that no user gets the file: only released answers count, not exact numbers in the file.
    """

    form: Form = "probabilities"
    noise: Noise | None = None
    floor: bool | float | Mapping[Any, float] | tuple[float, ...] = 0.0
    alone: bool = False

    def __post_init__(self) -> None:
        if self.form not in get_args(Form):
            raise ValueError(f"release: no form {self.form!r}; it is one of {', '.join(get_args(Form))}")
        if self.noise is not None and self.form != "probabilities":
            raise ValueError("release: noise is added to a regressor's answers, which have no form")
        if isinstance(self.floor, str | list) or self.floor == {}:
            raise ValueError(f"release: floor is True, a number, or a mapping label -> number, not {self.floor!r}")
        if self.floor and (self.form != "probabilities" or self.noise is not None):
            raise ValueError("release: a floor is for probabilities without noise")

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
            raise ValueError(
                f"release: floors of {len(labels)} labels are above 0, and at most {most:.3g} each, .1 in all but one; "
                f"given are {', '.join(f'{f:g}' for f in floors[:5])}"
            )
        return replace(self, floor=floors)

    def answered(self, values: Float) -> Float:
        """Return what the endpoint hands out for a regressor's answers, shape (n,)."""
        values = np.asarray(values, dtype=np.float64)
        return values if self.noise is None else np.asarray(values + self.noise.drawn(len(values)))

    def shown(self, p: Float) -> Float:
        """Return what the endpoint hands out for exact probabilities ``p``, both of shape (n, K).

        A label alone has 1, others 0; ties go to the earlier class. Nothing is normalised again. MLflow serves by this,
        stored by value: it needs numpy alone.
        """
        p = np.asarray(p, dtype=np.float64)
        if self.floor:
            return floored(p, np.array(self.floor))
        return p if self.form == "probabilities" else np.asarray(_find_likeliest(p), dtype=np.float64)

    @property
    def exact(self) -> bool:
        """Whether exact probabilities leave the endpoint."""
        return self.form == "probabilities" and self.noise is None and not self.floor

    def payload(self) -> dict[str, Any]:
        """Return JSON values; noise only where there is some."""
        stated: dict[str, Any] = {"form": self.form, **_USUAL}
        if self.floor:
            stated |= {"floor": self.floor, **({"alone": True} if self.alone else {})}
        if self.noise is not None:
            stated["noise"] = {"kind": type(self.noise).__name__.lower(), "scale": self.noise.scale}
        return stated

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> Self:
        """Return the release that ``payload`` describes; ``ValueError``: one that went with 0.1.0."""
        form = payload.get("form", "probabilities")
        if form not in get_args(Form) or payload.get("temperature", 1.0) != 1.0:
            raise ValueError(
                "release: rounded, binned or listed probabilities and temperatures went with 0.1.0, the last version "
                "that knew them: exact probabilities are judged in any case; declare these or labels"
            )
        stated, floor = payload.get("noise"), payload.get("floor", 0.0)
        noise = None if stated is None else _NOISES[stated["kind"]](float(stated["scale"]))
        floor = tuple(floor) if isinstance(floor, list) else floor
        return cls(form, noise, floor)  # only who checks may state that it is alone


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


def _find_likeliest(scores: Float, *, later: bool = False) -> Bool:
    """Return which label is the likeliest, shape (..., K); of equal ones the earlier, or the later."""
    step = -1 if later else 1
    best = scores[..., ::step].argmax(axis=-1)[..., None]
    return np.asarray((np.arange(scores.shape[-1]) == best)[..., ::step])


def released(log_p: Float, release: Release) -> Float:
    """Return the natural logarithm of what the endpoint hands out for each label, shape (..., K).

    It is that of ``Release.shown`` for the exact natural log-probabilities ``log_p``, but without its underflow:
    ``-inf`` where a label gets 0 (docs/mathematics.md, section 11).
    """
    if release.floor:
        return np.log(floored(np.exp(log_p), np.array(release.floor)))
    return log_p if release.form == "probabilities" else np.where(_find_likeliest(log_p), 0.0, -np.inf)


def measure_changes(log_with: Float, log_without: Float, release: Release) -> Float:
    """Return the largest label change of what is released, shape (...,), nats.

    Infinite where one model alone hands out 0: who asks sees the difference with certainty. Ties go one way;
    ``bound_changes`` has the worst of both.
    """
    return leakage.largest_change(released(log_with, release), released(log_without, release))


def without_digits(log_with: Float, log_without: Float) -> Float:
    """Return the largest change, shape (...,), nats, of probabilities that float64 does not hold in full; 0 of others.

    A closed form knows the logarithm of a probability of ``exp(-745)``, and an endpoint releases 5e-324 or 0.

    >>> without_digits(np.array([[0.0, -744.9], [-0.7, -0.7]]), np.array([[0.0, -745.2], [-0.5, -0.9]])).tolist()
    [inf, 0.0]
    """
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

    Ties of labels are resolved one way by one endpoint and another way by the next; the worst of both counts. Two
    models that give exactly the same log-probabilities release the same. ``FloatingPointError``: one is NaN.
    """
    if np.isnan(log_with).any() or np.isnan(log_without).any():
        raise FloatingPointError("NaN log-probabilities: an engine failure, not a zero")
    if release.form != "label":
        change = measure_changes(log_with, log_without, release)
        return change, change
    differ = (log_with != log_without).any(axis=-1)
    small, large = np.full(differ.shape, np.inf), np.zeros(differ.shape)
    for later in (False, True):  # either of equal labels may come first, by one endpoint always the same
        (may, must), (may_too, must_too) = (_rank_first(m, 0.0, later=later) for m in (log_with, log_without))
        large[differ & ((may & ~must_too) | (may_too & ~must)).any(axis=-1)] = np.inf
        small[~(differ & ((must & ~may_too) | (must_too & ~may)).any(axis=-1))] = 0.0
    return small, large


def _values(log_p: Float, release: Release, error: float) -> tuple[Float, Float]:
    """Return the lowest and highest logarithm of the value of each label, were every label listed."""
    if release.form == "label":
        return np.zeros(log_p.shape), np.zeros(log_p.shape)
    if release.floor:  # where each label moves by a factor at most, so does what makes the sum 1
        low, answers = np.log(np.array(release.floor)), released(log_p, release)
        return np.maximum(answers - 2 * error, low), np.minimum(answers + 2 * error, 0.0)
    nothing = np.isneginf(log_p)
    log_q = np.where(nothing, NOTHING, log_p)
    low, high = log_q - error, np.minimum(log_q + error, 0.0)
    high = np.where(high < SUBNORMAL, high + np.log(2.0), high)  # the last bit may be half of what is left
    low = np.where(nothing | (low < SUBNORMAL), -np.inf, low)
    return low, np.where(nothing | (high < NOTHING), -np.inf, high)


def _apart(one: tuple[Float, Float], other: tuple[Float, Float]) -> tuple[Float, Float]:
    """Return the smallest and the largest distance of two values from two ranges; that of 0 from 0 is 0."""
    with np.errstate(invalid="ignore"):
        farthest = np.fmax(one[1] - other[0], other[1] - one[0])
        nearest = np.fmax(one[0] - other[1], other[0] - one[1])
    return np.fmax(nearest, 0.0), np.fmax(farthest, 0.0)


def _rank_first(log_p: Float, error: float, *, later: bool = False) -> tuple[Bool, Bool]:
    """Return which labels may be the likeliest, and which certainly are; of equal ones the later or the earlier."""
    first = _find_likeliest(log_p, later=later)
    with np.errstate(invalid="ignore"):
        gap = log_p.max(axis=-1, keepdims=True) - log_p
        near = ((gap > 0) & (gap < TIED)).any(axis=-1, keepdims=True)  # not equal, but rounding may make them so
        e = np.where(near, max(error, TIED), error)
        may = gap <= 2 * e
    return np.where(e > 0, may, first), np.where(e > 0, may & (may.sum(axis=-1, keepdims=True) == 1), first)


def admissible(values: Float, log_p: Float, release: Release, error: float) -> Bool:
    """Return for which answers each value may be what a release hands out, shape (...,).

    ``values`` of shape (..., K) were handed out, 0 for a label that is not listed; ``log_p`` are exact natural
    log-probabilities. ``error`` bounds the error of each of these and the relative error of each value; above 0.
    """
    low, high = _values(log_p, release, error)
    with np.errstate(divide="ignore", invalid="ignore"):
        handed = np.log(values)
    fits = (handed >= low - error) & (handed <= high + error)
    if release.form == "label":
        may, must = _rank_first(log_p, error)
        return np.asarray(np.where(values == 0, ~must, may & fits).all(axis=-1))
    return np.asarray(fits.all(axis=-1))
