"""Watching Opacus at work: every batch drawn, every sum clipped, every noise added, every update made.

Nothing is believed that an attribute says. The watcher hooks the optimizer object itself, so methods that a subclass
replaced are watched too, and compares what came out of them with what it computes from the per-record gradients.
What reaches the parameters is compared with what the mechanism released. A library bends to whoever controls the
process: this finds mistakes, and only an audit can find malice.
"""

import hashlib
import random
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privgate.privacy_claims import watch_noise
from privgate.privacy_claims.watch_noise import Noise, method_replaced
from privgate.privacy_claims.watch_sampling import Draws, Used, entries_of, kind, matched, used
from privgate.privacy_claims.watch_transcript import DivergedError, EnoughError, Population, Transcript

#: settings that only scale the noise of a step, so that what they tell can be charged
NOISE, DIVISOR = "the noise multiplier", "the divisor of the noised sums"
#: random directions along which a record's gradient is kept, to see whether it changes
DIRECTIONS = 6


@dataclass
class NoisyStep:
    """One release of one optimizer.

    Parameters
    ----------
    batch : int
        Records in the sum.
    norm : float
        Clipping norm in force.
    clipped : bool
        Whether the released sum was the sum of gradients clipped to ``norm``.
    noise : Noise
    rows : float array of shape (batch, DIRECTIONS + 1)
        Each record's gradient: its norm, and its length along fixed random directions.
    parameters : str
        Digest of what the gradients were taken at.
    clipped_of : list of (int, dict)
        Records that were clipped together, and how many batches each sampler had drawn by then.
    divisor : float
        What the noised sum was divided by.
    norms : tuple of float
        Clipping norms of the layers in force, where each has its own.
    """

    batch: int
    norm: float
    clipped: bool
    noise: Noise
    rows: NDArray[np.float32]
    parameters: str = ""
    clipped_of: list[tuple[int, dict[int, int]]] = field(default_factory=list)
    divisor: float = 1.0
    norms: tuple[float, ...] = ()

    @property
    def zero(self) -> bool:
        """Whether some tensor got no noise."""
        return self.noise.zero


@dataclass
class _Pending:
    """What happened since the last update."""

    batch: int = 0
    clipped: bool = True
    rows: list[NDArray[np.float32]] = field(default_factory=list)
    clipped_of: list[tuple[int, dict[int, int]]] = field(default_factory=list)
    released: Any = None


class OpacusWatch:
    """What one run was seen to do; use as ``with OpacusWatch() as watch: train()``.

    Parameters
    ----------
    record : Transcript, optional
        Where to write down what is released.
    replay : Transcript, optional
        What to apply instead of what is released.
    drop : {"", "first", "last"}
        Leave a half out of every batch of a replay that has two entries or more; without the first, the others change
        their place.
    shake : bool
        Use up random numbers before each batch of a replay: whatever is random for a record is drawn otherwise.
    stop : bool
        End the training where the first gradients are clipped; by then it is known what batches are drawn from.
    place : int array, optional
        New place of each entry that batches are drawn from in a replay without some people; -1 of what is left out.
    """

    def __init__(
        self,
        *,
        record: Transcript | None = None,
        replay: Transcript | None = None,
        drop: str = "",
        shake: bool = False,
        stop: bool = False,
        place: NDArray[np.int64] | None = None,
    ) -> None:
        self.record, self.replay, self.stop = record, replay, stop
        self.drop, self.shake, self.place = drop, shake, place
        self.steps: list[NoisyStep] = []
        self.draws: dict[int, Draws] = {}
        self.populations: list[Population] = []
        self.bypassed = 0
        self.plain: list[str] = []
        self.scales: dict[int, set[float]] = {}
        self.unknown: list[str] = []
        self.settings: dict[str, str] = {}
        self._updates = 0
        self._made: list[Any] = []
        self._pending: dict[int, _Pending] = {}
        self._private: dict[int, Any] = {}  # id of the wrapped optimizer -> its private wrapper
        self._directions: dict[tuple[int, ...], Any] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        import torch
        from opacus.optimizers import DPOptimizer, optimizer
        from opacus.utils.uniform_sampler import UniformWithReplacementSampler
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
        from torch.utils.data import BatchSampler, DataLoader

        self._torch = torch
        self._stack.enter_context(method_replaced(DPOptimizer, "__init__", self._adopting))
        self._stack.enter_context(method_replaced(optimizer, "_generate_noise", self._generating))
        self._stack.enter_context(method_replaced(UniformWithReplacementSampler, "__iter__", self._drawing))
        self._stack.enter_context(method_replaced(BatchSampler, "__iter__", self._drawing))
        self._stack.enter_context(method_replaced(DataLoader, "__iter__", self._loading))
        for handle in (register_optimizer_step_pre_hook(self._update), register_optimizer_step_post_hook(self._after)):
            self._stack.callback(handle.remove)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # -- what is drawn ------------------------------------------------------------------------------------------------

    def _drawing(self, original: Any) -> Any:
        def iterate(sampler: Any) -> Iterator[Any]:
            if id(sampler) not in self.draws:
                self.draws[id(sampler)] = Draws(sampler, *kind(sampler), number=len(self.draws))
                if self.record is not None:
                    self.record.batches.append([])
            draws = self.draws[id(sampler)]
            draws.passes.append(len(draws.batches))
            for drawn in original(sampler):
                self.draws[id(sampler)] = self.draws.pop(id(sampler))  # the last is the latest
                generator = getattr(sampler, "generator", None) or self._torch.default_generator
                draws.rates |= {float(r) for r in (getattr(sampler, "sample_rate", None),) if r is not None}
                draws.predictable |= watch_noise.predictable(generator)
                batch = self._noted(draws, drawn)
                draws.batches.append(np.asarray(batch, dtype=object))
                yield batch

        return iterate

    def _noted(self, draws: Draws, batch: Any) -> Any:
        """Write a batch down, or return the one that was written down."""
        if self.record is not None:
            self.record.batches[draws.number].append((batch, self._torch.get_rng_state()))
        if self.replay is None or self.stop:  # what is drawn from may be shorter than what was written down
            return batch
        written = self.replay.batches
        if draws.number >= len(written) or len(draws.batches) >= len(written[draws.number]):
            return batch  # nothing to compare with: the steps will not agree either
        batch, state = written[draws.number][len(draws.batches)]
        self._torch.set_rng_state(state)
        if self.shake:
            self._torch.rand(7), np.random.random(7), random.random()  # noqa: NPY002, S311  the user's
        if self.place is not None and draws.records == (self.place >= 0).sum():
            batch = [int(self.place[i]) for i in batch if self.place[i] >= 0]
        half = {"first": slice(len(batch) // 2, None), "last": slice((len(batch) + 1) // 2)}
        return batch[half[self.drop]] if self.drop else batch

    def _loading(self, original: Any) -> Any:
        def iterate(loader: Any) -> Any:
            if all(p.dataset is not loader.dataset for p in self.populations):
                self.populations.append(Population(loader.dataset))
            population = next(p for p in self.populations if p.dataset is loader.dataset)
            sampler = loader.batch_sampler
            while sampler is not None:  # one that cuts batches into pieces holds the one that draws
                population.samplers.append(sampler)
                sampler = getattr(sampler, "sampler", None)
            return original(loader)

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
        for population in self.populations:
            population.look()
        self.settings = self.settings or _settings(optimizer, list(self.draws.values()))
        if self.stop:
            raise EnoughError
        before = [None if p.summed_grad is None else p.summed_grad.clone() for p in optimizer.params]
        expected, batch, rows = self._clipped_sum(optimizer)
        original()
        pending = self._pending.setdefault(id(optimizer), _Pending())
        pending.batch += batch
        pending.clipped_of.append((batch, {d.number: len(d.batches) for d in self.draws.values()}))
        pending.rows.append(rows)
        for p, old, new in zip(optimizer.params, before, expected, strict=True):
            added = p.summed_grad if old is None else p.summed_grad - old
            scale = float(new.norm()) + float(optimizer.max_grad_norm)
            pending.clipped &= float((added - new).norm()) <= 1e-3 * scale

    def _generating(self, original: Any) -> Any:
        def generate(*args: Any, **kwargs: Any) -> Any:
            noise = original(*args, **kwargs)
            self._made.append(noise.clone())
            return noise

        return generate

    def _noise(self, optimizer: Any, original: Any) -> None:
        sums = [p.summed_grad.clone() for p in optimizer.params]
        self._made.clear()
        original()
        pending = self._pending.setdefault(id(optimizer), _Pending(clipped=False))
        rows = np.concatenate(pending.rows) if pending.rows else np.zeros((0, DIRECTIONS + 1), np.float32)
        noise = watch_noise.measured(optimizer, sums, self._made)
        at = _digest(optimizer.params)
        norm = float(optimizer.max_grad_norm)
        norms = tuple(map(float, getattr(optimizer, "max_grad_norms", None) or ()))
        made = NoisyStep(pending.batch, norm, pending.clipped, noise, rows, at, pending.clipped_of, norms=norms)
        self.steps.append(made)
        pending.released = self._torch.cat([p.grad.detach().reshape(-1).double() for p in optimizer.params])

    def _clipped_sum(self, optimizer: Any) -> tuple[list[Any], int, NDArray[np.float32]]:
        """Return the sum of clipped per-record gradients, one tensor a parameter, their number, and each in short."""
        torch = self._torch
        samples = [s.detach() for s in optimizer.grad_samples]
        batch = len(samples[0])
        if batch == 0:
            return [torch.zeros_like(p) for p in optimizer.params], 0, np.zeros((0, DIRECTIONS + 1), np.float32)
        norms = torch.stack([g.reshape(batch, -1).norm(2, dim=1) for g in samples], dim=1)
        whole = norms.norm(2, dim=1)
        each = getattr(optimizer, "max_grad_norms", None)
        if each is not None:  # a norm a layer; their root sum of squares bounds the whole
            factors = [(c / (norms[:, i] + 1e-6)).clamp(max=1.0) for i, c in enumerate(each)]
        else:
            factors = [(optimizer.max_grad_norm / (whole + 1e-6)).clamp(max=1.0)] * len(samples)
        sums = [torch.einsum("i,i...", f.to(g.dtype), g) for f, g in zip(factors, samples, strict=True)]
        sizes = tuple(g[0].numel() for g in samples)
        if sizes not in self._directions:
            own = torch.Generator().manual_seed(0)
            self._directions[sizes] = [torch.randn(size, DIRECTIONS, generator=own) for size in sizes]
        along = sum(g.reshape(batch, -1).float() @ d for g, d in zip(samples, self._directions[sizes], strict=True))
        rows = torch.cat([whole[:, None].float(), along], dim=1).numpy()
        return sums, batch, rows

    # -- what reaches the parameters ----------------------------------------------------------------------------------

    def _update(self, optimizer: Any, *_: Any) -> None:
        private = self._private.get(id(optimizer))
        if private is None:
            return
        pending = self._pending.pop(id(private), None)
        if pending is None or pending.released is None:
            self.bypassed += 1
        else:
            scale = 1.0
            if private.loss_reduction == "mean":
                scale = float(private.expected_batch_size) * float(private.accumulated_iterations)
            self.scales.setdefault(id(private), set()).add(scale)
            self.steps[-1].divisor = scale
            now = self._torch.cat([p.grad.detach().reshape(-1).double() for p in private.params]) * scale
            size = float(pending.released.norm()) + 1e-12
            if not float((now - pending.released).norm()) <= 1e-3 * size:
                self.bypassed += 1
        number = list(self._private).index(id(optimizer))
        gradients = [p.grad for p in private.params]
        if self.record is not None:
            self.record.write(number, gradients)
        if self.replay is not None:
            for p, g in zip(private.params, self.replay.read(self._updates, number, gradients), strict=True):
                p.grad.copy_(g)
        self._updates += 1

    def _after(self, optimizer: Any, *_: Any) -> None:
        """Note what an update that no mechanism released made of the parameters."""
        if id(optimizer) in self._private or hasattr(optimizer, "original_optimizer"):
            return
        self.plain.append(_digest(p for group in optimizer.param_groups for p in group["params"]))

    def finish(self) -> None:
        """Look a last time at what batches were drawn from; a replay must have used its whole transcript."""
        for population in self.populations:
            population.look_again()
        if self.replay is not None and self._updates != self.replay.steps:
            raise DivergedError("training takes fewer steps on other records")

    # -- what it amounts to -------------------------------------------------------------------------------------------

    @property
    def noise_multiplier(self) -> float:
        """Smallest multiplier of all steps, lowered where less noise was measured than stated; NaN without steps."""
        return watch_noise.multiplier([s.noise for s in self.steps])

    @property
    def constants(self) -> list[tuple[Any, float]]:
        """Clipping norms and noise multiplier of each step."""
        return [((s.norm, s.norms), s.noise.stated) for s in self.steps]

    @property
    def defect(self) -> str:
        """Why the steps are not what they look like, in words; empty where nothing says so."""
        if any(len(scales) > 1 for scales in self.scales.values()):
            return "the noised sums were divided by other numbers in different steps, as if by the records drawn"
        return watch_noise.defect([s.noise for s in self.steps])

    @property
    def doubt(self) -> str:
        """Why it cannot be said what the steps do, in words; empty where it can."""
        return watch_noise.doubt([s.noise for s in self.steps])

    def sampling(self, records: int) -> Used:
        """Return what the batches of the steps were, for so many training records."""
        return used([s.clipped_of for s in self.steps], list(self.draws.values()), records)

    def entries(self, number: int) -> list[NDArray[Any]] | None:
        """Return what each step used of the batches that sampler ``number`` drew."""
        drawn = next((d for d in self.draws.values() if d.number == number), None)
        found = None if drawn is None else matched([s.clipped_of for s in self.steps], drawn)
        return None if drawn is None or found is None else entries_of(found[0], drawn)

    def population(self, number: int) -> int | None:
        """Return which population sampler ``number`` drew from."""
        sampler = next((d.sampler for d in self.draws.values() if d.number == number), None)
        fitting = [i for i, p in enumerate(self.populations) if any(s is sampler for s in p.samplers)]
        return fitting[0] if len(fitting) == 1 else None


def _settings(optimizer: Any, draws: list[Draws]) -> dict[str, str]:
    """Return what is settled before the first step, by what it is."""
    plain = (bool, int, float, str, tuple)
    groups = [{k: v for k, v in g.items() if isinstance(v, plain)} for g in optimizer.original_optimizer.param_groups]
    found = {
        "the shape of the model": [tuple(p.shape) for p in optimizer.params],
        "the rate of sampling": [d.rate for d in draws],
        "the number of steps in a pass": [getattr(d.sampler, "steps", None) for d in draws],
        "the size of batches": [getattr(d.sampler, "batch_size", None) for d in draws],
        "the clipping norm": (optimizer.max_grad_norm, getattr(optimizer, "max_grad_norms", None)),
        NOISE: optimizer.noise_multiplier,
        DIVISOR: optimizer.expected_batch_size,
        "the learning rate, or what else the optimizer is told,": groups,
    }
    return {name: repr(value) for name, value in found.items()}


def _digest(tensors: Iterable[Any]) -> str:
    made = hashlib.sha256()
    for t in tensors:
        made.update(t.detach().cpu().contiguous().numpy().tobytes())
    return made.hexdigest()
