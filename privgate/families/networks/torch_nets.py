"""Networks of the declarative torch recipe without each unit: many models trained in one batch, coupled."""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Index
from privgate.documents import strict_json
from privgate.errors import SubjectError
from privgate.families import designs
from privgate.families.closed_form import VANISHED
from privgate.families.designs import vanishing
from privgate.families.engine import Asked, Cost, Declined, Engine
from privgate.families.networks import together
from privgate.families.retrained import Retrained, Seeds, Shadows, Status
from privgate.subject import estimators
from privgate.subject.subject import Subject
from privgate.torch_recipe import NO_GPU, TorchTraining, resolve_device
from privgate.training.fit import Block, Fit
from privgate.training.fleet import Fleet

CLASS = "privgate.torch_recipe:TorchTraining"
#: nats; single-precision sums in another order, amplified by training: the re-check holds every answer to it
ROUNDING = 1e-3
#: floating-point operations a second of one core
SPEED = 4e10
#: seconds of a step of one model of somebody's own module, trained with others
OWN_STEP = 2e-4
#: what a kill may cost: so many seconds of a worker, or one of so many parts of the whole
LOST_SECONDS, PARTS = 10.0, 256
#: models of a block at most, and on a GPU
MOST, MOST_ON_GPU = 1024, 65536
#: how many times faster than a core a GPU is taken to be; never measured
GPU_SPEED = 100.0

_NOBODY = np.zeros(0, dtype=np.int64)


class TorchNets(Engine):
    """Leave-one-out for ``privgate.torch_recipe.TorchTraining``, with its built-in perceptron or anybody's module.

    A module of the user's own is opened in workers only, and trained in copies by ``torch.func`` where that covers its
    layers and no record's answer depends on another's; what it does not cover is named and refitted (``copies``).
    Equal to training without the unit, but for the order of single-precision sums: 1e-6 to 1e-5 nats were seen, and the
    re-check of every run refuses more than 1e-3. Blocks of models are calls of the fleet like any other: remembered,
    resumed, spread over workers. Same code on a CPU and a GPU (the recipe's ``device``).
    """

    name = "torch_nets"
    version = 2
    hands_on = "their block could not be trained, or the verdict was decided without them"
    trains = True

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data is not covered; empty if it is."""
        recipe = recipe_of(subject)
        if recipe is None:
            return "the recipe is not privgate's TorchTraining"
        if why := designs.design_refusal(subject):
            return why
        if len(subject.classes) < 2:
            return "there is one class only"
        try:
            import torch
        except ImportError:
            return "torch is not installed here; install privgate[torch]"
        if str(recipe.device).startswith("cuda") and not torch.cuda.is_available():
            return NO_GPU
        return ""

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of training one model a unit and seed at the speed of matrix products."""
        each = seconds_of_one(subject)
        held = designs.matrix(subject).nbytes + block_size(subject, len(units)) * subject.data.n * 5
        return Cost(0, each * len(units) * len(seeds), 400_000_000 + held)

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return every unit for every seed; handed on are those whose block failed (memory, a worker's death)."""
        subject, units, seeds, (row_unit, row_query) = asked.subject, asked.units, asked.seeds, asked.rows
        gone = vanishing(subject, units)
        log_p = np.full((len(seeds), len(row_query), len(subject.classes)), -np.inf)
        every, place = np.unique(row_query, return_inverse=True)
        whole = [_block((Fit(seed, every, left_out=_NOBODY),)) for seed in seeds]
        with asked.fleet.afresh():  # every unit rests on it
            full = asked.fleet.fits(subject, whole, label="training one network on all records")
        if bad := [a.problem for a in full if a.problem]:
            raise Declined(f"networks cannot be trained together: {bad[0]}")
        with_ = np.stack([a.log_p[place] for a in full]) if seeds else log_p.copy()
        members, bounds = subject.data.units, np.searchsorted(row_unit, np.arange(len(units) + 1))
        tried, size = np.flatnonzero(~gone), block_size(subject, len(units))
        parts = [(s, tried[k : k + size]) for s in range(len(seeds)) for k in range(0, len(tried), size)]
        blocks = [
            _block(tuple(Fit(seeds[s], row_query[bounds[u] : bounds[u + 1]], left_out=members[units[u]]) for u in part))
            for s, part in parts
        ]
        lost = np.zeros(len(units), dtype=bool)
        for (s, part), answer in zip(parts, asked.fleet.fits(subject, blocks, label=_LABEL), strict=True):
            rows = np.concatenate([np.arange(bounds[u], bounds[u + 1]) for u in part])
            if answer.problem:
                lost[part] = True
            else:
                log_p[s, rows] = answer.log_p
        made = Retrained.of(
            self.name,
            units,
            seeds,
            asked.rows,
            with_,
            log_p,
            error=np.where(gone, 0.0, ROUNDING),
            undefined={int(k): VANISHED for k in np.flatnonzero(gone)},
        )
        return (made.select(~lost), units[lost]) if lost.any() else (made, units[:0])

    def subsets(self, subject: Subject, masks: NDArray[np.bool_], seeds: Seeds, fleet: Fleet) -> Shadows | None:
        """Return models on subsets of the pool if one seed serves all: models of different seeds share no batches."""
        each = tuple(seeds) * len(masks) if len(seeds) == 1 else tuple(seeds)
        y = subject.data.pool_labels
        if len(set(each)) != 1 or not np.isin(y, subject.classes).all():
            return None
        codes = np.searchsorted(subject.classes, y)
        if any(len(np.unique(codes[mask])) < len(subject.classes) for mask in masks):
            return None
        pool, size = np.arange(len(y), dtype=np.int64), block_size(subject, len(masks))
        fits = [Fit(each[0], pool, members=np.flatnonzero(mask)) for mask in masks]
        blocks = [_block(tuple(fits[k : k + size])) for k in range(0, len(fits), size)]
        answers = fleet.fits(subject, blocks, label="training shadow networks in blocks")
        if any(a.problem for a in answers):
            return None
        log_p = np.concatenate([a.log_p for a in answers]).reshape(len(masks), len(y), -1)
        status = np.full(len(masks), Status.EXACT, dtype=object)
        return Shadows(masks, log_p, each, status, self.name)


_LABEL = "training networks without single people, in blocks"


def _block(fits: tuple[Fit, ...]) -> Block:
    return Block(f"{together.__name__}:trained", TorchNets.version, fits, (), ROUNDING)


def recipe_of(subject: Subject) -> TorchTraining | None:
    """Return the declarative recipe, or None; what names the user's code is its name, and nothing is imported."""
    payload = subject.recipe.payload
    if payload["kind"] != "estimator" or payload["predict"] is not None:
        return None
    spec = payload["estimator"]
    if spec.get("class") != CLASS:
        return None
    own: dict[str, Any] = {
        name: str(value) for name, value in spec["params"].items() if name in OWN_CODE and value is not None
    }
    if not own:
        made = subject.recipe.estimator_of(CLASS)
        return made if type(made) is TorchTraining else None
    with strict_json.reading("the recipe's estimator cannot be made", SubjectError):
        rest: dict[str, Any] = {
            name: estimators.decode(v, str) for name, v in spec["params"].items() if name not in own
        }
        return TorchTraining(**rest, **own)


#: parameters that may name functions of the user's
OWN_CODE = ("module", "loss", "schedule")


def seconds_of_one(subject: Subject) -> float:
    """Return about how long one model takes among others, seconds of one core."""
    recipe = recipe_of(subject)
    if recipe is None:
        return float("nan")
    n, d = subject.data.n, int(subject.data.X.shape[1])
    if recipe.module is not None:
        return OWN_STEP * recipe.epochs * -(-n // recipe.batch_size)
    sizes = (d, *recipe.hidden, len(subject.classes))
    return float(6.0 * n * recipe.epochs * sum(a * b for a, b in pairwise(sizes)) / SPEED)


def block_size(subject: Subject, models: int) -> int:
    """Return how many models a block holds: so few that a kill costs little, and no more than train well together."""
    recipe = recipe_of(subject)
    gpu = recipe is not None and resolve_device(recipe.device) != "cpu"
    each = max(seconds_of_one(subject), 1e-9) / (GPU_SPEED if gpu else 1.0)
    return int(np.clip(max(LOST_SECONDS / each, models / PARTS), 1, MOST_ON_GPU if gpu else MOST))


ENGINE = TorchNets()
