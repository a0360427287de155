"""Watching Opacus at work: every batch drawn, every sum clipped, every noise added, every update made.

Nothing is believed that an attribute says. The watcher hooks the optimizer object itself, so methods that a subclass
replaced are watched too, and compares what came out of them with what it computes from the per-record gradients.
What reaches the parameters is compared with what the mechanism released. A library bends to whoever controls the
process: this finds mistakes, and only an audit can find malice.
"""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

#: numbers of one step's noise that are kept to recognize it again
PRINT = 16
#: fewer numbers than this agree by accident too easily
SHORTEST = 6
#: chance that an honest run is called wrong by one of the checks on noise and batch sizes
RARE = 1e-6


@dataclass
class Step:
    """One release of one optimizer.

    Parameters
    ----------
    batch : int
        Records in the sum.
    norm : float
        Clipping norm in force.
    clipped : bool
        Whether the released sum was the sum of gradients clipped to ``norm``.
    stated : float
        Noise multiplier in force by the optimizer's word.
    squares : float
        Sum over coordinates of (noise / stated deviation)².
    count : int
        Coordinates.
    zero : bool
        No noise at all.
    print : array of shape (≤ PRINT,)
        First coordinates of the noise, in units of its deviation.
    """

    batch: int
    norm: float
    clipped: bool
    stated: float
    squares: float = 0.0
    count: int = 0
    zero: bool = True
    print: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))


@dataclass
class Draws:
    """Batches that one sampler drew.

    Parameters
    ----------
    sampler : object
        Kept alive, so that its identity stays its own.
    kind : {"poisson", "shuffled", "unknown"}
    records : int
        Size of what it draws from.
    rate : float
        By its word; NaN where it has none.
    sizes : list of int
    """

    sampler: Any
    kind: str
    records: int
    rate: float
    sizes: list[int] = field(default_factory=list)


class OpacusWatch:
    """What one run was seen to do; use as ``with OpacusWatch() as watch: train()``."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.draws: dict[int, Draws] = {}
        self.bypassed = 0
        self.unknown: list[str] = []
        self._pending: dict[int, _Pending] = {}
        self._private: dict[int, Any] = {}  # id of the wrapped optimizer -> its private wrapper
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        import torch
        from opacus.optimizers import DPOptimizer
        from opacus.utils.uniform_sampler import UniformWithReplacementSampler
        from torch.optim.optimizer import register_optimizer_step_pre_hook
        from torch.utils.data import BatchSampler

        self._torch = torch
        self._stack.enter_context(_replaced(DPOptimizer, "__init__", self._adopting))
        self._stack.enter_context(_replaced(UniformWithReplacementSampler, "__iter__", self._drawing))
        self._stack.enter_context(_replaced(BatchSampler, "__iter__", self._drawing))
        handle = register_optimizer_step_pre_hook(self._update)
        self._stack.callback(handle.remove)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # -- what is drawn ------------------------------------------------------------------------------------------------

    def _drawing(self, original: Any) -> Any:
        def iterate(sampler: Any) -> Iterator[Any]:
            if id(sampler) not in self.draws:
                self.draws[id(sampler)] = Draws(sampler, *_kind(sampler))
            draws = self.draws[id(sampler)]
            for batch in original(sampler):
                draws.sizes.append(len(batch))
                yield batch

        return iterate

    # -- what is clipped and noised -----------------------------------------------------------------------------------

    def _adopting(self, original: Any) -> Any:
        def init(made: Any, /, *args: Any, **kwargs: Any) -> None:
            original(made, *args, **kwargs)
            self._private[id(made.original_optimizer)] = made
            if hasattr(made, "unclipped_num_std"):
                self.unknown.append("adaptive clipping also releases a noised count, which is not accounted for here")
            clip, noise = made.clip_and_accumulate, made.add_noise
            made.clip_and_accumulate = lambda: self._clip(made, clip)
            made.add_noise = lambda: self._noise(made, noise)

        return init

    def _clip(self, optimizer: Any, original: Any) -> None:
        before = [None if p.summed_grad is None else p.summed_grad.clone() for p in optimizer.params]
        expected, batch = _clipped_sum(optimizer)
        original()
        pending = self._pending.setdefault(id(optimizer), _Pending())
        pending.batch += batch
        for p, old, new in zip(optimizer.params, before, expected, strict=True):
            added = p.summed_grad if old is None else p.summed_grad - old
            scale = float(new.norm()) + float(optimizer.max_grad_norm)
            pending.clipped &= float((added - new).norm()) <= 1e-3 * scale

    def _noise(self, optimizer: Any, original: Any) -> None:
        sums = [p.summed_grad.clone() for p in optimizer.params]
        original()
        norm = float(optimizer.max_grad_norm)
        pending = self._pending.setdefault(id(optimizer), _Pending(clipped=False))
        released = [p.grad.detach().reshape(-1).double() for p in optimizer.params]
        flat = self._torch.cat([g - s.reshape(-1).double() for g, s in zip(released, sums, strict=True)])
        stated = float(optimizer.noise_multiplier)
        deviation = stated * norm
        step = Step(pending.batch, norm, pending.clipped, stated, count=int(flat.numel()))
        # what float rounding leaves of a sum is no noise
        floor = 1e-6 * (norm + max((float(s.abs().max()) for s in sums if s.numel()), default=0.0))
        step.zero = deviation <= 0 or float(flat.abs().max()) <= floor
        if not step.zero:
            step.squares = float(((flat / deviation) ** 2).sum())
            step.print = (flat[:PRINT] / deviation).numpy()
        self.steps.append(step)
        pending.released = self._torch.cat(released)

    # -- what reaches the parameters ----------------------------------------------------------------------------------

    def _update(self, optimizer: Any, *_: Any) -> None:
        private = self._private.get(id(optimizer))
        if private is None:
            if not hasattr(optimizer, "original_optimizer"):
                self.bypassed += 1
            return
        pending = self._pending.pop(id(private), None)
        if pending is None or pending.released is None:
            self.bypassed += 1
            return
        scale = 1.0
        if private.loss_reduction == "mean":
            scale = float(private.expected_batch_size) * float(private.accumulated_iterations)
        now = self._torch.cat([p.grad.detach().reshape(-1).double() for p in private.params]) * scale
        size = float(pending.released.norm()) + 1e-12
        if float((now - pending.released).norm()) > 1e-3 * size:
            self.bypassed += 1

    # -- what it amounts to -------------------------------------------------------------------------------------------

    @property
    def noise_multiplier(self) -> float:
        """Smallest multiplier of all steps, lowered where less noise was measured than stated; NaN without steps."""
        from scipy.stats import chi2

        noisy = [s for s in self.steps if not s.zero]
        if not noisy:
            return 0.0 if self.steps else math.nan
        least = min(s.stated for s in noisy)
        squares, count = sum(s.squares for s in noisy), sum(s.count for s in noisy)
        if squares < chi2.ppf(RARE, count):
            least *= math.sqrt(squares / count)
        return least

    def sampling(self, records: int) -> tuple[str, float, int]:
        """Return (kind, sample rate, steps) of the batches that the steps really used.

        A sampler counts only if the sizes of its batches are those of the steps, one by one.
        """
        used = [s.batch for s in self.steps]
        if used and all(b == records for b in used):
            return "poisson", 1.0, len(used)
        nonempty = [b for b in used if b]
        for draws in self.draws.values():
            drawn = [b for b in draws.sizes if b]
            if drawn[: len(nonempty)] != nonempty:
                continue
            steps = max(len(used), len(draws.sizes))
            if draws.kind == "poisson" and not _is_binomial(draws, steps):
                continue
            rate = draws.rate if draws.kind == "poisson" else max(nonempty, default=1) / max(1, draws.records)
            return draws.kind, min(1.0, rate), steps
        return "unknown", min(1.0, max(nonempty, default=1) / max(1, records)), len(used)


@dataclass
class _Pending:
    """What happened since the last update."""

    batch: int = 0
    clipped: bool = True
    released: Any = None


def _clipped_sum(optimizer: Any) -> tuple[list[Any], int]:
    """Return the sum of clipped per-record gradients, one tensor a parameter, and the number of records."""
    import torch

    samples = [s.detach() for s in optimizer.grad_samples]
    batch = len(samples[0])
    if batch == 0:
        return [torch.zeros_like(p) for p in optimizer.params], 0
    norms = torch.stack([g.reshape(batch, -1).norm(2, dim=1) for g in samples], dim=1)
    each = getattr(optimizer, "max_grad_norms", None)
    if each is not None:  # a norm a layer; their root sum of squares bounds the whole
        factors = [(c / (norms[:, i] + 1e-6)).clamp(max=1.0) for i, c in enumerate(each)]
    else:
        factors = [(optimizer.max_grad_norm / (norms.norm(2, dim=1) + 1e-6)).clamp(max=1.0)] * len(samples)
    sums = [torch.einsum("i,i...", f.to(g.dtype), g) for f, g in zip(factors, samples, strict=True)]
    return sums, batch


def _kind(sampler: Any) -> tuple[str, int, float]:
    """Return (kind, records, rate) of a batch sampler."""
    from torch.utils.data import RandomSampler, SequentialSampler

    if hasattr(sampler, "sample_rate"):
        return "poisson", int(sampler.num_samples), float(sampler.sample_rate)
    inner = getattr(sampler, "sampler", None)
    records = len(inner) if inner is not None and hasattr(inner, "__len__") else 0
    once = isinstance(inner, SequentialSampler) or (isinstance(inner, RandomSampler) and not inner.replacement)
    return ("shuffled" if once else "unknown"), records, math.nan


def _is_binomial(draws: Draws, steps: int) -> bool:
    """Whether batch sizes vary as independent inclusion at the stated rate makes them, but for rare accidents."""
    from scipy.stats import binom, chi2

    n, q = draws.records, draws.rate
    if not 0 < q < 1:
        return q == 1
    sizes = np.array(draws.sizes[:steps], dtype=np.float64)
    total = sizes.sum()
    if total > binom.ppf(1 - RARE, n * len(sizes), q):
        return False
    spread = float(((sizes - n * q) ** 2).sum() / (n * q * (1 - q)))
    return bool(spread >= chi2.ppf(RARE, len(sizes)))


def repeats(runs: list[OpacusWatch]) -> bool:
    """Whether noise of one step came again in another step or run."""
    seen: set[bytes] = set()
    for watch in runs:
        for step in watch.steps:
            if step.zero or len(step.print) < SHORTEST:
                continue
            # a float32 sum hides the last digits of its noise
            key = np.round(step.print, 2).tobytes()
            if key in seen:
                return True
            seen.add(key)
    return False


@contextmanager
def _replaced(owner: Any, name: str, wrap: Any) -> Iterator[None]:
    original = owner.__dict__[name]
    setattr(owner, name, wrap(original))
    try:
        yield
    finally:
        setattr(owner, name, original)
