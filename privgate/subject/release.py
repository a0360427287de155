"""The release: what one query to the deployed model returns."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

import numpy as np

from privgate.arrays import Float

Form = Literal["probabilities", "rounded", "binned", "top_k", "label"]


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise of a ``scale`` in the unit of the targets, added afresh to each answer of a regressor's endpoint."""

    scale: float

    def __post_init__(self) -> None:
        if not 0 < self.scale < float("inf"):
            raise ValueError(f"release: the scale of noise must be finite and above 0, not {self.scale!r}")

    @abstractmethod
    def drawn(self, size: int) -> Float:
        """Return fresh noise from the system's own randomness, shape (size,)."""

    @abstractmethod
    def below(self, noise: Float) -> Float:
        """Return the probability of less noise than that."""

    @property
    def deviation(self) -> float:
        """Standard deviation, in the unit of the targets."""
        return self.scale


class Laplace(Noise):
    """Noise with density ``exp(-|z| / scale) / (2 scale)``: an answer that moves by d changes by d / scale nats."""

    __slots__ = ()

    def drawn(self, size: int) -> Float:  # noqa: D102  see Noise
        return np.random.default_rng().laplace(0.0, self.scale, size)

    def below(self, noise: Float) -> Float:  # noqa: D102  see Noise
        tail = 0.5 * np.exp(-np.abs(noise) / self.scale)
        return np.asarray(np.where(noise < 0, tail, 1 - tail))

    @property
    def deviation(self) -> float:  # noqa: D102  see Noise
        return float(np.sqrt(2.0)) * self.scale


class Gaussian(Noise):
    """Normal noise of standard deviation ``scale``: no change of the log-density is bounded over all answers."""

    __slots__ = ()

    def drawn(self, size: int) -> Float:  # noqa: D102  see Noise
        return np.random.default_rng().normal(0.0, self.scale, size)

    def below(self, noise: Float) -> Float:  # noqa: D102  see Noise
        from scipy.special import ndtr

        return np.asarray(ndtr(noise / self.scale), dtype=np.float64)


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
        The operator says that nobody gets the file: what is released decides, and not the exact numbers beside it.
    """

    form: Form = "probabilities"
    step: float = 0.01
    k: int = 1
    temperature: float = 1.0
    noise: Noise | None = None
    floor: bool | float | Mapping[Any, float] | tuple[float, ...] = 0.0
    alone: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.step < 1:
            raise ValueError(f"release: step must lie in (0, 1), not {self.step!r}")
        if self.form not in get_args(Form):
            raise ValueError(f"release: no form {self.form!r}; it is one of {', '.join(get_args(Form))}")
        if isinstance(self.k, bool) or self.k != int(self.k) or self.k < 1:
            raise ValueError(f"release: k must be a whole number of at least 1, not {self.k!r}")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"release: temperature must be finite and above 0, not {self.temperature!r}")
        if self.noise is not None and not (self.form == "probabilities" and self.temperature == 1.0):
            raise ValueError("release: noise is added to a regressor's answers, which have no form and no temperature")
        if isinstance(self.floor, str | list) or self.floor == {}:
            raise ValueError(f"release: floor is True, a number, or a mapping label -> number, not {self.floor!r}")
        if self.floor and (self.form != "probabilities" or self.noise is not None):
            raise ValueError("release: a floor is for probabilities that are neither rounded, listed nor noisy")

    def resolved(self, classes: Any) -> Self:
        """Return the release with one floor for each of the sorted labels.

        ``ValueError``: a floor is not above 0, is of no label of the data, or all together are above .1.
        """
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

        Rounded as numpy rounds; bins ``[0, h), [h, 2h), …`` by their centres. A label that "top_k" does not list has 0.
        Of "label" one label has 1, every other 0. Ties go to the earlier class. Nothing is normalised again. This is
        what ``privgate.log_model`` makes MLflow serve, so it needs nothing but numpy and is stored by value.
        """
        p = np.asarray(p, dtype=np.float64)
        if self.temperature != 1.0:
            with np.errstate(divide="ignore"):
                scaled = np.log(p) / self.temperature
            p = np.exp(scaled - np.logaddexp.reduce(scaled, axis=-1, keepdims=True))
        if self.form == "rounded":
            return rounded(p, self.step)
        if self.form == "binned":
            return binned(p, self.step)
        if self.floor:
            return floored(p, np.array(self.floor))
        if self.form == "probabilities":
            return p
        k = 1 if self.form == "label" else min(self.k, p.shape[-1])
        listed = np.argsort(-p, axis=-1, kind="stable")[..., :k]
        out = np.zeros(p.shape)
        values = np.ones(listed.shape) if self.form == "label" else np.take_along_axis(p, listed, axis=-1)
        np.put_along_axis(out, listed, values, axis=-1)
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
        noise = payload.get("noise")
        made = None if noise is None else _NOISES[noise["kind"]](float(noise["scale"]))
        floor = payload.get("floor", 0.0)
        floor = tuple(floor) if isinstance(floor, list) else floor
        return cls(**{**payload, "noise": made, "floor": floor, "alone": False})  # which only who checks may state


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


def rounded(p: Float, step: float) -> Float:
    """Return multiples of ``step`` nearest to ``p``, halves to the even one, as ``np.round`` does for powers of ten."""
    per_one = 1.0 / step
    whole = np.rint(per_one)
    # np.round(p, 2) multiplies by 100 and divides by it; 0.01 itself is not a hundredth
    if abs(per_one - whole) < 1e-9 * per_one:
        return np.asarray(np.rint(p * whole) / whole)
    return np.asarray(np.rint(p / step) * step)


def last_bin(step: float) -> int:
    """Return the number of the last bin, which holds probability 1 too."""
    return int(np.ceil(1.0 / step - 1e-9) - 1)


def binned(p: Float, step: float) -> Float:
    """Return the centres of the bins ``[0, step), [step, 2 step), …`` that hold ``p``; 1 belongs to the last one."""
    # a hair of tolerance keeps 0.29 / 0.01 in its own bin
    return np.asarray((np.minimum(np.floor(p / step + 1e-12), last_bin(step)) + 0.5) * step)
