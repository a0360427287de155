"""Three wrappers around libraries of differential privacy: noise added, batches drawn, budget spent.

What our own code measures inside a training fails apart from the training, so that neither is told as the other.
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
#: standard errors by which noise may be smaller than stated
ERRORS = 3.0


@dataclass
class Noising:
    """One call of ``add_noise``: the stated multiplier and norm, what was added in their product, and of what."""

    stated: float
    norm: float
    squares: float
    numbers: int
    secret: bool
    batches: int


@dataclass
class Drawing:
    """What one sampler drew: how, of how many records, at what rate, and how many batches in how many passes."""

    sampler: Any
    kind: str
    records: int
    rate: float
    passes: int = 0
    batches: int = 0


class Watch:
    """What one training does with the libraries; use as ``with Watch() as watch: train()``."""

    def __init__(self) -> None:
        self.noisings: list[Noising] = []
        self.drawings: list[Drawing] = []
        self.updates = 0
        self.unknown: list[str] = []
        self.spends: list[tuple[float, float]] = []
        self.releases = self.silent = 0
        self.hazards: list[str] = []
        self.faults: list[str] = []
        self._busy = False
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        # a library that cannot be imported beside the others cannot be at work either
        with suppress(ImportError):
            import opacus  # noqa: F401  only whether it is there

            self._watch_opacus()
        with suppress(ImportError):
            import diffprivlib  # noqa: F401  only whether it is there

            self._watch_diffprivlib()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _replace(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        """Replace a method while the training is watched."""
        original = vars(owner)[name]
        setattr(owner, name, wrap(original))
        self._stack.callback(setattr, owner, name, original)

    def _measure(self, measure: Callable[..., Any], *given: Any) -> Any:
        """Return what our own code measures; an error of ours is kept apart from those of the training."""
        try:
            return measure(*given)
        except Exception as exc:  # noqa: BLE001  raised again in the process that asked
            self.faults.append(f"{type(exc).__name__}: {exc}")
            return None

    # -- Opacus -------------------------------------------------------------------------------------------------------

    def _watch_opacus(self) -> None:
        from opacus.optimizers import DPOptimizer
        from opacus.utils.uniform_sampler import UniformWithReplacementSampler
        from torch.optim.optimizer import register_optimizer_step_pre_hook
        from torch.utils.data import BatchSampler

        for kind in _kinds_of(DPOptimizer, "add_noise"):
            self._replace(kind, "add_noise", self._noising)
        for kind in (UniformWithReplacementSampler, BatchSampler):
            self._replace(kind, "__iter__", self._drawing)
        self._stack.callback(register_optimizer_step_pre_hook(self._update).remove)

    def _update(self, optimizer: Any, *_: Any) -> None:
        self.updates += not hasattr(optimizer, "original_optimizer")

    def _noising(self, original: Any) -> Any:
        @wraps(original)
        def add_noise(optimizer: Any) -> None:
            if self._busy:  # one kind of optimizer asks another
                original(optimizer)
                return
            self._busy = True
            try:
                sums = self._measure(lambda: [p.summed_grad.detach().clone() for p in optimizer.params])
                original(optimizer)
                if sums is not None:
                    self._measure(self._note_noise, optimizer, sums)
            finally:
                self._busy = False

        return add_noise

    def _note_noise(self, optimizer: Any, sums: list[Any]) -> None:
        parts = [
            p.grad.detach().reshape(-1).double() - s.reshape(-1).double()
            for p, s in zip(optimizer.params, sums, strict=True)
        ]
        stated, norm = float(optimizer.noise_multiplier), float(optimizer.max_grad_norm)
        scale, squares = stated * norm, sum(float(part @ part) for part in parts)
        added = scale > 0 and math.isfinite(squares) and all(bool(part.any()) for part in parts if part.numel())
        secret = bool(getattr(optimizer, "secure_mode", False)) or not is_guessable(optimizer.generator)
        batches = max(1, int(optimizer.accumulated_iterations))
        share, numbers = squares / scale**2 if scale > 0 else 0.0, sum(part.numel() for part in parts)
        self.noisings.append(Noising(stated, norm, share, numbers, secret and added, batches))
        for name in ("clip_and_accumulate", "add_noise", "pre_step"):
            if not str(getattr(getattr(optimizer, name), "__module__", "")).startswith("opacus"):
                self.unknown.append(f"{name} is the training's own code, and what it clips or adds is not known")
        if hasattr(optimizer, "unclipped_num_std"):
            self.unknown.append("adaptive clipping also releases a noised count, which is not accounted for here")

    def _drawing(self, original: Any) -> Any:
        def iterate(sampler: Any) -> Iterator[Any]:
            drawing = self._measure(self._drawing_of, sampler)
            for batch in original(sampler):
                if drawing is not None:
                    drawing.batches += 1
                yield batch

        return iterate

    def _drawing_of(self, sampler: Any) -> Drawing:
        drawing = next((d for d in self.drawings if d.sampler is sampler), None)
        if drawing is None:
            drawing = Drawing(sampler, *_drawn_by(sampler))
            self.drawings.append(drawing)
        drawing.passes += 1
        return drawing

    @property
    def used(self) -> Drawing:
        """What the batches of the steps were: those of one sampler that drew as many, Poisson batches first."""
        needed = sum(n.batches for n in self.noisings)
        enough = [d for d in self.drawings if d.batches >= needed > 0]
        for kind in ("poisson", "shuffled"):
            if fits := [d for d in enough if d.kind == kind]:
                return max(fits, key=lambda d: (d.rate, d.batches))
        return Drawing(None, "unknown", max((d.records for d in enough), default=0), 1.0)

    # -- diffprivlib --------------------------------------------------------------------------------------------------

    def _watch_diffprivlib(self) -> None:
        from diffprivlib import BudgetAccountant
        from diffprivlib.mechanisms.base import DPMechanism

        self._replace(BudgetAccountant, "spend", self._spending)
        for kind in _kinds_of(DPMechanism, "randomise"):
            self._replace(kind, "randomise", self._releasing)
        log = self._stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        self._stack.callback(lambda: self.hazards.extend(dict.fromkeys(_leaks_in(log or ()))))

    def _spending(self, original: Any) -> Any:
        def spend(accountant: Any, epsilon: float, delta: float) -> Any:
            done = original(accountant, epsilon, delta)
            self._measure(lambda: self.spends.append((float(epsilon), float(delta))))
            return done

        return spend

    def _releasing(self, original: Any) -> Any:
        def randomise(mechanism: Any, *given: Any, **named: Any) -> Any:
            self._measure(self._note_release, mechanism)
            return original(mechanism, *given, **named)

        return randomise

    def _note_release(self, mechanism: Any) -> None:
        self.releases += 1
        # noise that is scaled by 0 is none; a generator with a state was seeded by somebody
        seeded = hasattr(getattr(mechanism, "_rng", None), "get_state")
        with suppress(AttributeError):
            seeded |= mechanism.sensitivity == 0
        self.silent += seeded


def _leaks_in(log: Any) -> Iterator[str]:
    for entry in log:
        if entry.category.__name__ == "PrivacyLeakWarning":
            yield f"diffprivlib warns of a privacy leak: {str(entry.message).strip().splitlines()[0]}"


def is_guessable(generator: Any) -> bool:
    """Return whether a torch generator's seed can be guessed: few bits, or the one that torch gives to all."""
    import torch

    seed = int((torch.default_generator if generator is None else generator).initial_seed())
    return seed < GUESSABLE or seed == torch.Generator().initial_seed()


def _drawn_by(sampler: Any) -> tuple[str, int, float]:
    """Return how a sampler draws, of how many records, and at what rate; another class may say this and do that."""
    from opacus.utils.uniform_sampler import UniformWithReplacementSampler
    from torch.utils.data import RandomSampler, SequentialSampler, SubsetRandomSampler

    secret = "unknown" if is_guessable(getattr(sampler, "generator", None)) else "poisson"
    if type(sampler) is UniformWithReplacementSampler:
        return secret, int(sampler.num_samples), float(sampler.sample_rate)
    inner: Any = getattr(sampler, "sampler", None)
    size = int(getattr(sampler, "batch_size", 0))
    records = len(inner) if hasattr(inner, "__len__") else 0
    if records and size >= records and not sampler.drop_last:
        return secret, records, 1.0  # everybody is in every batch
    each_once = type(inner) in (SequentialSampler, SubsetRandomSampler)
    each_once |= type(inner) is RandomSampler and not inner.replacement and records <= len(inner.data_source)
    rate = min(1.0, size / max(1, records))
    return ("shuffled" if each_once and rate else "unknown"), records, rate or 1.0


def _kinds_of(base: Any, method: str) -> list[type]:
    """Return a class and all below it that define a method of their own."""
    own = [base] if method in vars(base) else []
    return own + [kind for below in base.__subclasses__() for kind in _kinds_of(below, method)]
