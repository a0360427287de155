"""What a training that adds Gaussian noise to clipped sums guarantees: epsilon at a delta, from what it did.

Claim.  The training is (``high``, delta)-differentially private for the stated neighbours.

Certificate.  The transcript: noise multiplier, sampling, rate, steps. That the training did so is what a rerun is
watched for; here it is believed.

Why it is enough.  One step is at most as telling as a pair of mixtures of Gaussians (Mironov 2017; Zhu and Wang 2019;
Choquette-Choo et al. 2024 for several records of one person). Their privacy loss, ``ln P/Q`` under P, is put on a grid,
every piece of it upward, and composed by convolution (Koskela et al. 2020; Doroshenko et al. 2022). Mass that leaves
the grid above counts as certain loss, mass below is moved up. Without amplification by sampling the composition of
Gaussians is Gaussian, and its delta is in closed form (Balle and Wang 2018). Batches of fixed size are bounded by
Rényi differential privacy (Wang, Balle and Kasiviswanathan 2019, Theorem 9).

Axioms.  ``math.erfc`` errs by at most 8 units in the last place; numpy's FFT of N numbers errs by at most
``_FFT log2 N / 3`` units of roundoff times their norm (Higham 2002, Theorem 24.2, has 6.7). docs/mathematics.md,
section 17.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from privgate.kernel.assertion import Case, Float, Index, Limits, Refused, every
from privgate.kernel.rounding import EPS, gamma

#: largest width of a step of the loss, nats, and as a share of the deviation of one step's loss
_STEP, _SHARE = 1e-3, 0.1
#: units of roundoff of a convolution's three transforms, an octave
_FFT = 24
#: mass that a truncation may move, at either end
_CUT = 1e-18
#: products up to which losses are convolved term by term
_DIRECT = 3e7
#: numbers held by one loss
_MOST = 2**22
#: largest epsilon that is looked for, nats
_LARGEST = 700.0


@dataclass(frozen=True, slots=True)
class Transcript:
    """A sequence of noised sums of clipped gradients.

    Parameters
    ----------
    noise : float
        Standard deviation of the noise over the clipping norm.
    rate : float in (0, 1]
        Expected share of the records in a batch.
    steps : int
    sampling : {"poisson", "fixed_size", "shuffled", "unknown"}
        How batches are drawn. Shuffled and unknown ones amplify nothing.
    replace : bool
        Whether neighbours differ in a record replaced by another, or in one added or removed.
    records : int
        Training size, for fixed-size batches.
    copies : int
        Records of one person, who comes or goes with all of them.
    releases : int
        How often one record can be in a step that nothing amplifies.
    """

    noise: float
    rate: float
    steps: int
    sampling: str
    replace: bool
    records: int = 0
    copies: int = 1
    releases: int = 0

    def __post_init__(self) -> None:
        every(
            (math.isfinite(self.noise) and self.noise >= 0 and 0 < self.rate <= 1, "no such noise or rate"),
            (
                self.steps >= 1 and 1 <= self.copies <= 1_000 and self.records >= 0,
                "no such numbers of steps or records",
            ),
            (self.noise <= 1e9 and self.rate >= 1e-12, "so much noise, or so few records, are not accounted for"),
            (self.sampling in ("poisson", "fixed_size", "shuffled", "unknown"), "the sampling is unknown"),
        )


@dataclass(frozen=True, eq=False)
class Loss:
    """A privacy loss: mass (k,) at the losses ``(first + i) * step``, and certain loss beside it."""

    mass: Float
    first: int
    certain: float
    step: float

    def delta(self, epsilon: float) -> float:
        """Return delta at epsilon, at least."""
        loss = (self.first + np.arange(len(self.mass))) * self.step
        over = loss > epsilon
        told = float((self.mass[over] * -np.expm1(np.maximum(epsilon - loss[over], -_LARGEST))).sum())
        return min(1.0, told * (1 + (len(loss) + 8) * EPS) + self.certain)

    def both(self, other: "Loss") -> "Loss":
        """Return the loss of both releases."""
        n, short = len(self.mass) + len(other.mass) - 1, min(len(self.mass), len(other.mass))
        every((n <= _MOST, "the losses do not fit the memory"))
        first, certain = self.first + other.first, self.certain + other.certain
        (big, rest), (many, few) = (_largest(m, int(_DIRECT / n)) for m in (self.mass, other.mass))
        # sums of positive terms err by a share of themselves; what is concentrated needs no transform
        made = (_shifted(big, self.mass, other.mass) + _shifted(many, other.mass, rest)) * (1 + 2 * gamma(short + 8))
        if not few.any() or not rest.any():
            return _cut(made, first, certain, _CUT, self.step)
        size = 1 << (n - 1).bit_length()
        made += np.maximum(np.fft.irfft(np.fft.rfft(rest, size) * np.fft.rfft(few, size), size)[:n], 0.0)
        # a transform is at most the mass: errors are shares of the other's norm, and n of them add up to root n times
        ends = sum(float(a.sum() * np.linalg.norm(b)) for a, b in ((rest, few), (few, rest)))
        off = _FFT * size.bit_length() * EPS * math.sqrt(n) * ends
        return _cut(made, first, certain + off, _CUT + 2 * off, self.step)

    def times(self, count: int) -> "Loss":
        """Return the loss of so many releases, by squaring."""
        found, power = None, self
        while count:
            if count & 1:
                found = power if found is None else found.both(power)
            count >>= 1
            power = power.both(power) if count else power
        if found is None:
            raise Refused("a composition of no steps")
        return found


def _largest(mass: Float, most: int) -> tuple[Index, Float]:
    """Return where the largest masses are, so many at most, and the others in their place."""
    big = np.argsort(mass)[::-1][:most]
    rest = mass.copy()
    rest[big] = 0.0
    return big, rest


def _shifted(at: Index, mass: Float, other: Float) -> Float:
    """Return the convolution of the masses there with another's, as sums of products."""
    made = np.zeros(len(mass) + len(other) - 1)
    if len(at) and np.ptp(at) < 2 * len(at):  # the largest masses lie side by side
        first, window = int(at.min()), np.zeros(int(np.ptp(at)) + 1)
        window[at - first] = mass[at]
        made[first : first + len(window) + len(other) - 1] = np.convolve(window, other)
        return made
    for i in at.tolist():
        made[i : i + len(other)] += mass[i] * other
    return made


def _cut(mass: Float, first: int, certain: float, most: float, step: float) -> Loss:
    """Return the loss without tails of at most this mass: the upper one becomes certain, the lower one moves up."""
    above = np.cumsum(mass[::-1])[::-1]
    kept = np.flatnonzero(above > most)
    if not len(kept):
        return Loss(np.zeros(1), 0, certain + float(mass.sum()), step)
    last = int(kept[-1])
    certain += float(above[last + 1]) * (1 + len(mass) * EPS) if last + 1 < len(mass) else 0.0
    below = np.cumsum(mass)
    start = min(int(np.searchsorted(below, most)), last)
    made = mass[start : last + 1].copy()
    made[0] += float(below[start] - mass[start])
    return Loss(made, first + start, certain, step)


def _tails(z: Float) -> tuple[Float, Float]:
    """Return the probabilities that a normal number is at most z, and that it is larger."""
    half = np.array([0.5 * math.erfc(abs(v) / math.sqrt(2)) for v in z.tolist()])
    return np.where(z < 0, half, 1 - half), np.where(z < 0, 1 - half, half)


def _pieces(edge: Float, noise: float, mixture: tuple[Float, Float]) -> tuple[Float, Float, float, float]:
    """Return the mass between edges, how far it may be off, and the mass of both tails."""
    mass, off, tails = np.zeros(len(edge) - 1), np.zeros(len(edge) - 1), np.zeros(2)
    for weight, centre in zip(*mixture, strict=True):
        below, above = _tails((edge - centre) / noise)
        mass += weight * np.where(above[:-1] < 0.5, above[:-1] - above[1:], below[1:] - below[:-1])
        # a share of the tail, and of where its edge is: z phi(z) is at most (1 + z^2) times the tail
        z = np.abs(edge / noise) + abs(centre / noise)
        off += weight * (32 + 4 * z[1:] ** 2 + 4 * z[:-1] ** 2) * EPS * np.minimum(below[1:], above[:-1])
        tails += weight * np.array([below[0], above[-1]])
    return np.maximum(mass, 0.0), off, float(tails[0]), float(tails[1])


def _loss(noise: float, here: tuple[Float, Float], there: tuple[Float, Float], *, grid: int = 20_000) -> Loss:
    """Return the loss of one step: mixtures of Gaussians, each (weights, centres); ``here`` is where one is.

    The loss is monotone in the released number, since one mixture's centres lie beyond the other's. A piece whose
    losses lie between two numbers of the grid is spread to these two, both mixtures' masses kept. What can be told from
    it is convex in their ratio, so it only grows (Doroshenko et al. 2022, Theorem 3.1).
    """
    centres = np.concatenate([here[1], there[1]])
    edge = np.linspace(centres.min() - 9.5 * noise, centres.max() + 9.5 * noise, grid)
    at = _log_density(edge, noise, here) - _log_density(edge, noise, there)
    rising = bool(at[-1] >= at[0])
    (mass, off, *tails), (other, other_off, *_) = (_pieces(edge, noise, mixture) for mixture in (here, there))
    spread = math.sqrt(float(np.average(((at[1:] + at[:-1]) / 2) ** 2, weights=mass + EPS)))
    step = max(min(_STEP, _SHARE * spread), float(np.ptp(at)) * 16 / _MOST)
    doubt = 1e-9 * step + 64 * EPS * np.abs(at)
    low = np.floor((np.minimum(at[1:], at[:-1]) - doubt[1:]) / step).astype(np.int64)
    high = np.ceil((np.maximum(at[1:], at[:-1]) + doubt[1:]) / step).astype(np.int64)
    first = int(low.min())
    every((int(high.max()) - first < _MOST, "one step tells more than fits the memory"))
    most, least = np.exp(-low * step), np.exp(-high * step)
    with np.errstate(all="ignore"):
        up = (mass * most - other + off * most + other_off) / (most - least) * (1 + 1e-12)
    up = np.clip(np.where(np.isnan(up), mass, up), 0.0, mass) + off
    made = np.bincount(high - first, up).astype(np.float64) + np.bincount(
        low - first, np.maximum(mass - up, 0.0) + off, high.max() - first + 1
    )
    made[0] += tails[0] if rising else tails[1]
    return _cut(made, first, (tails[1] if rising else tails[0]) * (1 + 64 * EPS), _CUT, step)


def _log_density(x: Float, noise: float, mixture: tuple[Float, Float]) -> Float:
    weights, centres = mixture
    with np.errstate(divide="ignore"):  # a weight of 0 adds nothing
        logs = np.log(weights)
    terms = logs[:, None] + (2 * centres[:, None] * x - centres[:, None] ** 2) / (2 * noise**2)
    return np.asarray(np.logaddexp.reduce(terms, axis=0))


def _mixtures(told: Transcript) -> list[tuple[tuple[Float, Float], tuple[Float, Float]]]:
    """Return the pairs of mixtures that a step of Poisson sampling is, in both directions."""
    k, m = np.arange(told.copies + 1, dtype=np.float64), told.copies
    weights = np.array([float(math.comb(m, int(i))) for i in k]) * told.rate**k * (1 - told.rate) ** (m - k)
    some, nothing = (weights, k), (np.ones(1), np.zeros(1))
    if not told.replace:
        return [(some, nothing), (nothing, some)]
    every((told.copies == 1, "several records a person that are replaced are not covered"))
    return [(some, (weights, -k))]  # symmetric


def losses(told: Transcript) -> list[Loss]:
    """Return the composed losses of Poisson sampling, one a direction."""
    return [_loss(told.noise, *pair).times(told.steps) for pair in _mixtures(told)]


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return delta at epsilon of noise of deviation 1, the sum moved by ``mu``; Balle and Wang (2018), Theorem 5."""
    if mu == 0:
        return 0.0
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    first, second = 0.5 * math.erfc(a / math.sqrt(2)), 0.5 * math.erfc(b / math.sqrt(2))
    return max(0.0, first * (1 + 32 * EPS) - math.exp(min(epsilon, _LARGEST)) * second * (1 - 64 * EPS * (1 + epsilon)))


def _fixed_size(told: Transcript, delta: float) -> float:
    """Return epsilon of batches of fixed size, replace-one neighbours; nats."""
    every((told.replace and told.copies == 1 and told.records >= 1, "fixed-size batches need replaced single records"))
    size = max(1, math.ceil(told.rate * told.records * (1 - 1e-9)))
    share, best = math.log(size / told.records), math.inf
    one = 4 / (2 * told.noise**2)  # Rényi divergence an order: a replaced record moves the sum by two norms

    for order in (*range(2, 65), 96, 128, 192, 256, 512, 1024):
        second = min(math.log(4) + _log_expm1(2 * one), math.log(2) + 2 * one)
        terms = [0.0, 2 * share + _log_choose(order, 2) + second]
        terms += [j * share + _log_choose(order, j) + math.log(2) + (j - 1) * j * one for j in range(3, order + 1)]
        renyi = float(np.logaddexp.reduce(terms)) / (order - 1) * (1 + 1e-9)
        # Canonne, Kamath and Steinke (2020), Proposition 12
        spent = told.steps * renyi + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
        best = min(best, max(spent, 0.0))
    return best


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _log_expm1(x: float) -> float:
    return x if x > 30 else math.log(math.expm1(x))


def epsilon(told: Transcript, delta: float) -> float:
    """Return the least epsilon that is found at delta; nats, infinite without noise."""
    every((0 < delta < 1, "Gaussian noise has no finite epsilon at delta 0"))
    if told.noise == 0:
        return math.inf
    if told.rate < 1 and told.sampling == "poisson":
        found = losses(told)
        return _least(lambda e: max(loss.delta(e) for loss in found), delta)
    if told.rate < 1 and told.sampling == "fixed_size":
        return _fixed_size(told, delta)
    count = told.releases if told.sampling == "shuffled" and told.rate < 1 else told.steps
    every((count >= 1, "how often a record can be used is not known"))
    mu = told.copies * (2.0 if told.replace else 1.0) * math.sqrt(count) / told.noise
    return _least(lambda e: gaussian_delta(mu * (1 + 8 * EPS), e), delta)


def _least(curve: Callable[[float], float], delta: float) -> float:
    """Return an epsilon at which the curve is at most delta, to 1e-10 of the least."""
    if curve(0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while curve(high) > delta:
        low, high = high, 2 * high
        if high > _LARGEST:
            return math.inf
    while high - low > 1e-10 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (low, middle) if curve(middle) <= delta else (middle, high)
    return high


def bound(case: Case) -> Limits:
    """Return 0 and the epsilon of the transcript, as the limits of anybody."""
    names = {"noise": float, "rate": float, "steps": int, "sampling": str, "replace": bool}
    told = {name: case.setting(name, kind) for name, kind in names.items()}
    more = {name: case.setting(name, int, least) for name, least in {"records": 0, "copies": 1, "releases": 0}.items()}
    return Limits(np.zeros(1), np.array([epsilon(Transcript(**told, **more), case.setting("delta", float))]))
