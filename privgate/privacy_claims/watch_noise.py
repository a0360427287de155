"""Whether what was added to sums is the Gaussian noise that is stated, and what a budget accountant was told."""

import math
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from privgate.arrays import Float

# Watching a budget accountant: what diffprivlib's estimators spent, whichever accountant they were given.


@dataclass
class MechanismCall:
    """One release of one mechanism: its settings, what it was given and gave, its generator afterwards.

    ``value`` is None where it was given a function of the records.
    """

    settings: str
    epsilon: float
    sensitivity: float
    both_ways: bool
    value: Any
    output: Any
    state: Any

    def times(self, value: Any) -> int:
        """Return how many neighbours lie between what was given and ``value``."""
        if np.shape(self.value) != np.shape(value):
            return 1
        moved = np.asarray(value - self.value).reshape(-1) / self.sensitivity
        up, down = (math.ceil(max(0.0, float(m)) - 1e-9) for m in (moved.max(initial=0.0), -moved.min(initial=0.0)))
        found = up + down if self.both_ways else max(up, down)
        return max(found, int(moved.any()))


class BudgetWatch:
    """Spends, warnings and releases of one run; use as ``with BudgetWatch() as watch: train()``.

    Parameters
    ----------
    replay : BudgetWatch, optional
        Of the run whose mechanisms gave what these give instead of what they draw.
    """

    def __init__(self, replay: "BudgetWatch | None" = None) -> None:
        self.spends: list[tuple[float, float]] = []
        self.hazards: list[str] = []
        self.calls: list[MechanismCall] = []
        self.entered = 0.0
        self.unseen = 0.0  # epsilon of one record where what enters is no number
        self.forests: list[list[Any]] = []  # each partitions the records among its trees
        self.between = self._known = False  # whether numpy's own generator was seeded with a number
        self._replay, self._other, self._stack, self._inside = replay, "", ExitStack(), False

    def __enter__(self) -> Self:
        from diffprivlib import BudgetAccountant
        from diffprivlib.mechanisms.base import DPMechanism

        self._owner, self._original = BudgetAccountant, BudgetAccountant.__dict__["spend"]
        original = self._original

        def spend(accountant: Any, epsilon: float, delta: float) -> Any:
            done = original(accountant, epsilon, delta)
            self.spends.append((float(epsilon), float(delta)))
            return done

        BudgetAccountant.spend = spend
        for kind in _kinds_of(DPMechanism):
            if "randomise" in kind.__dict__:
                self._stack.enter_context(method_replaced(kind, "randomise", self._releasing))
        self._stack.enter_context(method_replaced(np.random, "seed", self._seeding))
        with suppress(ImportError):  # of trees, with some versions of scikit-learn
            from diffprivlib.models import RandomForestClassifier

            self._stack.enter_context(method_replaced(RandomForestClassifier, "fit", self._planting))
        self._caught = warnings.catch_warnings(record=True)
        self._log = self._caught.__enter__()
        warnings.simplefilter("always")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._caught.__exit__(None, None, None)
        self._owner.spend = self._original
        for entry in self._log or ():
            if entry.category.__name__ == "PrivacyLeakWarning":
                text = f"diffprivlib warns of a privacy leak: {str(entry.message).strip().splitlines()[0]}"
                if text not in self.hazards:
                    self.hazards.append(text)

    def _seeding(self, original: Any) -> Any:
        def seed(number: Any = None) -> None:
            self._known |= number is not None
            original(number)

        return seed

    def _planting(self, original: Any) -> Any:
        def fit(forest: Any, *args: Any, **kwargs: Any) -> Any:
            if not forest.shuffle and forest.n_estimators > 1:
                self.hazards.append(IN_ORDER)
            if forest.random_state is not None or self._known:
                self._seeded(forest.random_state or 0)
            self._inside = True  # leaves that hold nobody release nothing: calls cannot be told apart, trees can
            try:
                made = original(forest, *args, **kwargs)
            finally:
                self._inside = False
            self.unseen += 2 * float(forest.epsilon)
            self.forests.append([tree.tree_ for tree in forest.estimators_])
            before = [] if self._replay is None else self._replay.forests[len(self.forests) - 1 : len(self.forests)]
            for tree, kept in zip(forest.estimators_, before[0] if before else (), strict=False):
                if not np.array_equal(*(t.__getstate__()["nodes"] for t in (tree.tree_, kept))):
                    self._other = self._other or "where the trees of a forest are cut"
                tree.tree_ = kept
            return made

        return fit

    def _releasing(self, original: Any) -> Any:
        def randomise(mechanism: Any, *args: Any, **kwargs: Any) -> Any:
            if self._inside:  # one mechanism is made of another
                return original(mechanism, *args, **kwargs)
            self._inside = True
            try:
                output = original(mechanism, *args, **kwargs)
            finally:
                self._inside = False
            given = next(iter([*args, *kwargs.values()]), None)
            return self._noted(mechanism, getattr(mechanism, "utility", None) if given is None else given, output)

        return randomise

    def _noted(self, mechanism: Any, given: Any, output: Any) -> Any:
        """Write one release down, and return what was released in the run that is followed."""
        own = ("utility", "random_state", "measure")  # a measure is the distance between records, as in a quantile
        told = {k: v for k, v in vars(mechanism).items() if k[0] != "_" and k not in own}
        self.between |= getattr(mechanism, "measure", None) is not None
        value = None if callable(given) or given is None else np.array(given, dtype=np.float64)
        size, rng = math.nan, mechanism._rng  # noqa: SLF001  the library's
        with suppress(AttributeError):  # of functions and matrices they have other names
            size = float(mechanism.sensitivity)
        state = rng.get_state() if hasattr(rng, "get_state") else None
        self._seeded(rng)
        named, both = repr((type(mechanism).__name__, sorted(told.items()))), bool(told.get("monotonic"))
        call = MechanismCall(named, float(mechanism.epsilon), size, both, value, output, state)
        self.calls.append(call)
        plain = value is not None and not math.isnan(size)
        self.unseen += 0.0 if plain else call.epsilon
        if self._replay is None or len(self.calls) > len(self._replay.calls):
            return _handed(output, output)
        before = self._replay.calls[len(self.calls) - 1]
        if before.settings != call.settings or (before.value is None) != (value is None):
            self._other = self._other or f"what a mechanism is told ({type(mechanism).__name__})"
        elif plain:
            self.entered += before.epsilon * before.times(value)
        if before.state is not None:  # what a mechanism draws follows what it is given
            rng.set_state(before.state)
        return _handed(before.output, output)

    def _seeded(self, rng: Any) -> None:
        """Note a generator whose seed can be guessed; one that comes from the operating system has its entropy."""
        if isinstance(rng, int | np.integer) or hasattr(rng, "get_state"):
            source = getattr(getattr(rng, "_bit_generator", None), "seed_seq", None)
            entropy = getattr(source, "entropy", 0)
            if not isinstance(entropy, int) or entropy < LEAST_ENTROPY:
                self.hazards.append(SEEDED)

    def fault(self) -> str:
        """Return what is otherwise than in the run that was followed; empty if nothing."""
        followed = self._replay or self
        if self._other or (len(self.calls), len(self.forests)) == (len(followed.calls), len(followed.forests)):
            return self._other
        return "how often a mechanism releases something"


def _handed(used: Any, own: Any) -> Any:
    """Return what a mechanism gives; a function also holds what it is in this run, so that keeping it shows."""

    def handed(*given: Any, _own: Any = own, **named: Any) -> Any:
        return used(*given, **named)

    return handed if callable(used) else used


#: seeds of numpy's older generators have 32 bits; whoever has fewer than these can be tried
LEAST_ENTROPY = 2**64
SEEDED = "a mechanism draws from a random_state that was seeded with a number: trying them all undoes its noise"


IN_ORDER = (
    "diffprivlib's forest with shuffle=False gives each tree the records of some places: who leaves moves all behind, "
    "and every tree sees other people, but epsilon is spent once; pass shuffle=True"
)


def _kinds_of(base: Any) -> list[type]:
    return [base, *(kind for below in base.__subclasses__() for kind in _kinds_of(below))]


@contextmanager
def method_replaced(owner: Any, name: str, wrap: Any) -> Iterator[None]:
    """Replace a method while a training is watched."""
    original = owner.__dict__[name]
    setattr(owner, name, wrap(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


# Whether what was added to the sums of one run is the Gaussian noise it is stated to be.

#: numbers of one step's noise that are kept to recognize it again
PRINT = 16
#: fewer numbers than this agree by accident too easily
SHORTEST = 6
#: numbers of one step's noise, evenly spaced, whose distribution and independence are judged
KEPT = 256
#: chance that an honest run is called wrong by one of the checks on noise and batch sizes
RARE = 1e-6
#: fewer numbers do not tell Gaussian noise from other noise of its deviation
ENOUGH = 3000
#: seeds below this can be tried one by one; those that torch takes from the operating system have 53 bits
GUESSABLE = 2**32
#: seconds around now in which a seed that is a time is guessed, in parts of a second of these sizes
HOUR, PARTS = 3600, (10**3, 10**6, 10**9)


@dataclass
class Noise:
    """What one step added to its sum, in units of the stated deviation.

    Parameters
    ----------
    stated : float
        Noise multiplier in force by the optimizer's word.
    squares, counts : arrays of shape (parameter tensors,)
        Sum of squares, and number of coordinates, of each tensor.
    zero : bool
        Some tensor got no noise at all.
    kept : array of shape (at most KEPT,)
    seed : int
        What the generator was seeded with.
    clock : bool
        Whether the seed is the time of the run, in thousandths, millionths or billionths of a second.
    own : bool
        Whether the numbers are those that the library's own generator of noise returned.
    """

    stated: float
    squares: Float = field(default_factory=lambda: np.zeros(0))
    counts: Float = field(default_factory=lambda: np.zeros(0))
    zero: bool = True
    kept: Float = field(default_factory=lambda: np.zeros(0))
    seed: int = GUESSABLE
    clock: bool = False
    own: bool = True


def measured(optimizer: Any, sums: list[Any], made: list[Any]) -> Noise:
    """Return what ``optimizer`` added to ``sums``, its own before it added noise.

    Parameters
    ----------
    optimizer : DPOptimizer
    sums, made : lists of tensors
        Sums of clipped gradients, and what the library's generator of noise returned meanwhile, one a parameter.
    """
    import torch

    stated, norm = float(optimizer.noise_multiplier), float(optimizer.max_grad_norm)
    generator = optimizer.generator or torch.default_generator
    parts = [
        p.grad.detach().reshape(-1).double() - s.reshape(-1).double()
        for p, s in zip(optimizer.params, sums, strict=True)
    ]
    flat = torch.cat(parts)
    # what float rounding leaves of a sum is no noise
    floor = 1e-6 * (norm + max((float(s.abs().max()) for s in sums if s.numel()), default=0.0))
    untouched = any(not bool(part.any()) for part in parts if part.numel())
    if stated * norm <= 0 or float(flat.abs().max()) <= floor or untouched or not bool(flat.isfinite().all()):
        return Noise(stated)
    units = (flat / (stated * norm)).numpy()
    pieces = np.split(units, np.cumsum([p.numel() for p in parts])[:-1])
    places = np.unique(np.linspace(0, len(units) - 1, min(KEPT, len(units))).astype(int))
    seed = int(generator.initial_seed())
    return Noise(
        stated,
        np.array([float(p @ p) for p in pieces]),
        np.array([float(len(p)) for p in pieces]),
        zero=False,
        kept=units[places],
        seed=seed,
        clock=_is_clock(seed, time.time()),
        own=_same(parts, made, floor),
    )


def predictable(generator: Any) -> bool:
    """Whether a generator's seed can be guessed: few bits, the time, or the one that torch gives to all."""
    import torch

    seed = int(generator.initial_seed())
    return seed < GUESSABLE or seed == torch.Generator().initial_seed() or _is_clock(seed, time.time())


def _is_clock(seed: int, now: float) -> bool:
    """Whether a seed is a time about ``now``; seeds of 53 random bits are with probability 1e-6."""
    return any(abs(seed - now * part) < HOUR * part for part in PARTS)


def _same(added: list[Any], made: list[Any], floor: float) -> bool:
    if len(added) != len(made):
        return False
    flat = [m.detach().reshape(-1).double() for m in made]
    return all(
        (a.shape == m.shape and not a.numel()) or float((a - m).abs().max()) <= max(floor, 1e-5 * float(m.abs().max()))
        for a, m in zip(added, flat, strict=True)
    )


def multiplier(steps: list[Noise]) -> float:
    """Return the smallest multiplier of all steps, lowered to what was measured; NaN without noised steps.

    Every tensor is judged alone, over every stretch of 1, 2, 4, … steps: noise may be missing in a part of the model or
    of the training. What is too small by chance less than ``RARE`` counts as its lower 99.9 % limit.
    """
    from scipy.stats import chi2

    noisy = [s for s in steps if not s.zero]
    if not noisy:
        return 0.0 if steps else math.nan
    least = min(s.stated for s in noisy)
    for shape in {tuple(s.counts) for s in noisy}:
        run = [s for s in noisy if tuple(s.counts) == shape]
        squares, counts = np.stack([s.squares for s in run]), np.array(shape)
        length = 1
        while length <= len(run):
            starts = range(0, len(run) - length + 1, max(1, length // 2))
            sums = np.stack([squares[a : a + length].sum(axis=0) for a in starts])
            # each length has at most twice as many stretches as steps
            few = sums < chi2.ppf(RARE / (64 * len(run) * len(shape)), length * counts)
            if few.any():
                scale = np.sqrt(sums / chi2.isf(1e-3, length * counts))
                least = min(least, float((scale * min(s.stated for s in run))[few].min()))
            length *= 2
    return least


def defect(steps: list[Noise]) -> str:
    """Return why the noise of one run is not independent Gaussian noise, in words; empty where nothing says so."""
    from scipy.stats import kstest, norm

    noisy = [s for s in steps if not s.zero and len(s.kept) >= SHORTEST]
    if any(s.seed < GUESSABLE for s in noisy):
        return f"the generator of the noise was seeded with a number below {GUESSABLE}: trying them all undoes it"
    if any(s.clock for s in noisy):
        return "the generator of the noise was seeded with the time: trying the times of that day undoes it"
    runs = [np.stack([s.kept for s in noisy if len(s.kept) == size]) for size in {len(s.kept) for s in noisy}]
    # unequal steps, and unequal coordinates, must be unrelated
    related = "the noise is not independent between steps and coordinates: much of it can be subtracted"
    if any(_aligned(run) or _aligned(run.T) for run in runs):
        return related
    if not noisy or multiplier(steps) < min(s.stated for s in noisy):
        return ""  # too little noise is accounted for as such
    if kstest(np.concatenate([s.kept for s in noisy]), norm.cdf).pvalue < RARE:
        return "the noise is not Gaussian with the stated deviation"
    return related if any(_cancelling(run) or _cancelling(run.T) for run in runs) else ""


def doubt(steps: list[Noise]) -> str:
    """Return why it cannot be said what the noise is, in words: somebody else's, and too little to judge it."""
    count = sum(len(s.kept) for s in steps if not s.own and not s.zero)
    if all(s.own or s.zero for s in steps) or count >= ENOUGH:
        return ""
    return f"the noise is not drawn by the library, and {count} numbers of it are too few to see what it is"


def _aligned(rows: Float) -> bool:
    """Whether two rows are nearly multiples of each other."""
    count, length = rows.shape
    if count < 2 or length < SHORTEST:
        return False
    rows = rows[:: max(1, count // KEPT)]
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    cosine = np.abs(unit @ unit.T)
    np.fill_diagonal(cosine, 0)
    # the chance of so large a cosine between two of all pairs
    return bool(cosine.max() ** 2 > 1 - (RARE / count**2) ** (2 / (length - 1)))


def _cancelling(rows: Float) -> bool:
    """Whether rows tend to agree with, or to cancel, those before them."""
    from scipy.stats import chi2

    count, length = rows.shape
    if count < 2 or length < SHORTEST:
        return False
    total = float((rows.sum(axis=0) ** 2).sum() / count)
    if not chi2.ppf(RARE, length) <= total <= chi2.isf(RARE, length):
        return True
    lags = range(1, min(count, 9))
    products = np.array([(rows[:-lag] * rows[lag:]).sum() for lag in lags])
    pairs = np.array([(count - lag) * length for lag in lags])
    # sums of products of normal numbers: normal in the middle, exponential far out
    return bool((np.abs(products) > 6 * np.sqrt(pairs) + 20).any())


def repeats(runs: list[list[Noise]]) -> bool:
    """Whether noise of one step came again in another step or run."""
    seen: set[bytes] = set()
    for run in runs:
        for step in run:
            if step.zero or len(step.kept) < SHORTEST:
                continue
            # a float32 sum hides the last digits of its noise
            key = np.round(step.kept[:PRINT], 2).tobytes()
            if key in seen:
                return True
            seen.add(key)
    return False
