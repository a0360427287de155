"""Wrappers that record what libraries of differential privacy do: add noise, draw batches, spend budget.

An error of a wrapper's own code goes into ``Watch.faults`` and never into the training that it watches.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, Self

#: seeds below this can be tried one by one; those that torch takes from the operating system have 53 bits
GUESSABLE = 2**32
#: standard errors by which the measured noise may be smaller than stated
ERRORS = 3.0


@dataclass
class NoisedStep:
    """One call of an Opacus optimizer's ``add_noise``, over all gradients of one update."""

    stated_multiplier: float
    clipping_norm: float
    #: sum of the squares of the added numbers, in units of the stated deviation
    squares: float
    numbers: int
    #: whether every gradient got noise that nobody can draw again from a guessed seed
    secret: bool
    #: of the generator; None where the operating system draws
    seed: int | None
    #: batches whose gradients the update sums up
    batches: int


@dataclass
class DrawnBatches:
    """The batches that one sampler drew; ``kind`` is "poisson", "shuffled" or "unknown"."""

    sampler: Any
    kind: str
    #: number of records to draw from
    records: int
    rate: float
    passes: int = 0
    batches: int = 0
    #: of the generator
    seed: int | None = None


class Watch:
    """What one training does with the libraries; use as ``with Watch() as watch: train()``."""

    def __init__(self) -> None:
        self.noised_steps: list[NoisedStep] = []
        self.samplers: list[DrawnBatches] = []
        self.updates = 0  # of all optimizers of torch, with noise or without
        self.unaccounted: list[str] = []  # sentences: why the training cannot be accounted for
        self.spends: list[tuple[float, float]] = []
        self.releases = self.noiseless_releases = 0
        self.hazards: list[str] = []
        self.faults: list[str] = []
        self._adds_noise = False
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        # a training cannot use a library that cannot be imported
        with suppress(ImportError):
            self._watch_opacus()
        with suppress(ImportError):
            self._watch_diffprivlib()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _wrap_method(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        original = vars(owner)[name]
        setattr(owner, name, wrap(original))
        self._stack.callback(setattr, owner, name, original)

    def _wrap_record(self, owner: Any, name: str, record: Callable[..., Any]) -> None:
        """Have ``record`` called with what a method is called with, before it."""

        def wrap(original: Any) -> Any:
            @wraps(original)
            def method(*arguments: Any, **named: Any) -> Any:
                self._record(record, *arguments, **named)
                return original(*arguments, **named)

            return method

        self._wrap_method(owner, name, wrap)

    def _record(self, record: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        try:
            return record(*arguments, **named)
        except Exception as exc:  # noqa: BLE001  ``observe`` raises it in the gate's process
            self.faults.append(f"{type(exc).__name__}: {exc}")
            return None

    # -- Opacus -------------------------------------------------------------------------------------------------------

    def _watch_opacus(self) -> None:
        from opacus.optimizers import DPOptimizer
        from opacus.utils.uniform_sampler import UniformWithReplacementSampler
        from torch.optim.optimizer import register_optimizer_step_pre_hook
        from torch.utils.data import BatchSampler

        for kind in _list_definers(DPOptimizer, "add_noise"):
            self._wrap_method(kind, "add_noise", self._wrap_add_noise)
        for kind in (UniformWithReplacementSampler, BatchSampler):
            self._wrap_method(kind, "__iter__", self._wrap_iteration)
        self._stack.callback(register_optimizer_step_pre_hook(self._count_update).remove)

    def _count_update(self, optimizer: Any, *_: Any) -> None:
        # an Opacus optimizer steps by its original optimizer, for which this hook is called, too
        self.updates += not hasattr(optimizer, "original_optimizer")

    def _wrap_add_noise(self, original: Any) -> Any:
        @wraps(original)
        def add_noise(optimizer: Any) -> None:
            if self._adds_noise:  # a subclass calls the method of its base: both are wrapped, and one of them counts
                original(optimizer)
                return
            self._adds_noise = True
            try:
                sums = self._record(lambda: [p.summed_grad.detach().clone() for p in optimizer.params])
                original(optimizer)
                if sums is not None:
                    self._record(self._record_noised_step, optimizer, sums)
            finally:
                self._adds_noise = False

        return add_noise

    def _record_noised_step(self, optimizer: Any, sums: list[Any]) -> None:
        noises = [
            p.grad.detach().reshape(-1).double() - s.reshape(-1).double()
            for p, s in zip(optimizer.params, sums, strict=True)
        ]
        multiplier, norm = float(optimizer.noise_multiplier), float(optimizer.max_grad_norm)
        scale, squares = multiplier * norm, sum(float(noise @ noise) for noise in noises)
        added = scale > 0 and math.isfinite(squares) and all(bool(noise.any()) for noise in noises if noise.numel())
        seed = None if getattr(optimizer, "secure_mode", False) else read_seed(optimizer.generator)
        secret = seed is None or not is_guessable(optimizer.generator)
        batches = max(1, int(optimizer.accumulated_iterations))
        squares, numbers = squares / scale**2 if scale > 0 else 0.0, sum(noise.numel() for noise in noises)
        self.noised_steps.append(NoisedStep(multiplier, norm, squares, numbers, secret and added, seed, batches))
        for name in ("clip_and_accumulate", "add_noise", "pre_step"):
            if not str(getattr(getattr(optimizer, name), "__module__", "")).startswith("opacus"):
                self.unaccounted.append(f"{name} is the training's own code, and what it clips or adds is not known")
        if hasattr(optimizer, "unclipped_num_std"):
            self.unaccounted.append("adaptive clipping also releases a noised count, which is not accounted for here")

    def _wrap_iteration(self, original: Any) -> Any:
        def iterate(sampler: Any) -> Iterator[Any]:
            drawn = self._record(self._record_pass, sampler)
            for batch in original(sampler):
                if drawn is not None:
                    drawn.batches += 1
                yield batch

        return iterate

    def _record_pass(self, sampler: Any) -> DrawnBatches:
        drawn = next((d for d in self.samplers if d.sampler is sampler), None)
        if drawn is None:
            seed = read_seed(getattr(sampler, "generator", None))
            drawn = DrawnBatches(sampler, *_classify_sampler(sampler), seed=seed)
            self.samplers.append(drawn)
        drawn.passes += 1
        return drawn

    @property
    def used_batches(self) -> DrawnBatches:
        """The batches of the noised steps: of a sampler that drew enough for all, a Poisson sampler first."""
        needed = sum(step.batches for step in self.noised_steps)
        sufficient = [d for d in self.samplers if d.batches >= needed > 0]
        for kind in ("poisson", "shuffled"):
            if candidates := [d for d in sufficient if d.kind == kind]:
                return max(candidates, key=lambda d: (d.rate, d.batches))
        return DrawnBatches(None, "unknown", max((d.records for d in sufficient), default=0), 1.0)

    # -- diffprivlib --------------------------------------------------------------------------------------------------

    def _watch_diffprivlib(self) -> None:
        from diffprivlib import BudgetAccountant
        from diffprivlib.mechanisms.base import DPMechanism

        self._wrap_record(BudgetAccountant, "spend", self._record_spend)
        for kind in _list_definers(DPMechanism, "randomise"):
            self._wrap_record(kind, "randomise", self._record_release)
        log = self._stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        self._stack.callback(lambda: self.hazards.extend(dict.fromkeys(_list_leak_warnings(log or ()))))

    def _record_spend(self, _: Any, epsilon: float, delta: float) -> None:
        self.spends.append((float(epsilon), float(delta)))

    def _record_release(self, mechanism: Any, *_: Any) -> None:
        self.releases += 1
        # diffprivlib's own generator takes its numbers from the operating system and has no state
        noiseless = hasattr(getattr(mechanism, "_rng", None), "get_state")
        with suppress(AttributeError):
            noiseless |= mechanism.sensitivity == 0  # which scales the noise
        self.noiseless_releases += noiseless


def _list_leak_warnings(log: Any) -> Iterator[str]:
    for entry in log:
        if entry.category.__name__ == "PrivacyLeakWarning":
            yield f"diffprivlib warns of a privacy leak: {str(entry.message).strip().splitlines()[0]}"


def read_seed(generator: Any) -> int:
    """Return the seed of a torch generator; of torch's own where it is None."""
    import torch

    return int((torch.default_generator if generator is None else generator).initial_seed())


def is_guessable(generator: Any) -> bool:
    """Return whether somebody can guess a torch generator's seed: it is small, or torch's default one."""
    import torch

    return (seed := read_seed(generator)) < GUESSABLE or seed == torch.Generator().initial_seed()


def _classify_sampler(sampler: Any) -> tuple[str, int, float]:
    """Return kind, records and rate for ``DrawnBatches``; a sampler of the training's own class is "unknown"."""
    from opacus.utils.uniform_sampler import UniformWithReplacementSampler
    from torch.utils.data import RandomSampler, SequentialSampler, SubsetRandomSampler

    poisson = "unknown" if is_guessable(getattr(sampler, "generator", None)) else "poisson"
    if type(sampler) is UniformWithReplacementSampler:
        return poisson, int(sampler.num_samples), float(sampler.sample_rate)
    inner: Any = getattr(sampler, "sampler", None)
    size = int(getattr(sampler, "batch_size", 0))
    records = len(inner) if hasattr(inner, "__len__") else 0
    if records and size >= records and not sampler.drop_last:
        return poisson, records, 1.0  # a batch of all records is a Poisson batch of rate 1
    each_once = type(inner) in (SequentialSampler, SubsetRandomSampler)
    each_once |= type(inner) is RandomSampler and not inner.replacement and records <= len(inner.data_source)
    rate = min(1.0, size / max(1, records))
    return ("shuffled" if each_once and rate else "unknown"), records, rate or 1.0


def _list_definers(base: Any, method: str) -> list[type]:
    definers = [base] if method in vars(base) else []
    return definers + [kind for child in base.__subclasses__() for kind in _list_definers(child, method)]
