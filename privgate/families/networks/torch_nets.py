"""Networks of the declarative torch recipe without each unit: many models trained in one batch, coupled."""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.families import design
from privgate.families.engine import Asked, Cost, Engine
from privgate.families.removal import VANISHED, vanishing
from privgate.families.retrained import Index, Retrained, Seeds, Shadows, Status
from privgate.models.record_keyed import n_batches, record_keys, stand_ins
from privgate.subject.subject import Subject
from privgate.torch_recipe import NO_GPU, TorchTraining, resolve_device
from privgate.training.fleet import Fleet

CLASS = "privgate.torch_recipe:TorchTraining"
#: nats; single-precision sums in another order, amplified by training: the re-check holds every answer to it
ROUNDING = 1e-3
#: share of the largest change that differences in bfloat16 may be off by: 3e-4 was seen for usual training, 6e-3 where
#: it is erratic (single records at a high learning rate); the re-check holds every answer to it
MIXED = 1e-2


class TorchNets(Engine):
    """Leave-one-out for ``privgate.torch_recipe.TorchTraining`` with its built-in perceptron.

    Equal to training without the unit, but for the order of single-precision sums: 1e-6 to 1e-5 nats were seen, and the
    re-check of every run refuses more than 1e-3. Same code on a CPU and a GPU (the recipe's ``device``).
    """

    name = "torch_nets"
    precisions = ("mixed",)

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data is not covered; empty if it is."""
        recipe = recipe_of(subject)
        if recipe is None:
            return "the recipe is not privgate's TorchTraining"
        if recipe.module is not None:
            return "the module is the user's own code, which runs in workers only"
        if why := design.refusal(subject):
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
        recipe = recipe_of(subject)
        n, d = subject.data.n, int(subject.data.X.shape[1])
        sizes = (d, *(recipe.hidden if recipe else ()), len(subject.classes))
        flops = 6.0 * n * (recipe.epochs if recipe else 1) * sum(a * b for a, b in pairwise(sizes))
        return Cost(0, flops * len(units) * len(seeds) / 4e10, 400_000_000)

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return every unit for every seed; nothing is handed on.

        With ``precision="mixed"`` models that miss one record are trained as differences in bfloat16, where that covers
        the recipe and pays (``perceptron_differences``); their error is then ``MIXED`` of the largest change as well.
        """
        subject, units, seeds, (row_unit, row_query) = asked.subject, asked.units, asked.seeds, asked.rows
        unit, rows = design.unit_rows(subject, units)
        gone = vanishing(subject, units)
        shape = len(seeds), len(row_query), len(subject.classes)
        with_, without = np.empty(shape), np.full(shape, -np.inf)
        everyone = np.ones((1, subject.data.n), dtype=bool)
        for s, seed in enumerate(seeds):
            job = _Job(subject, seed, mixed=asked.precision == "mixed")
            with_[s] = job.answers(everyone, np.zeros(len(row_query), dtype=np.int64), row_query)
            keep = np.ones((len(units), subject.data.n), dtype=bool)
            keep[unit, rows] = False
            live = ~gone[row_unit]
            order = np.cumsum(~gone) - 1
            without[s, live] = job.answers(keep[~gone], order[row_unit[live]], row_query[live])
        single = np.bincount(unit, minlength=len(units)) == 1
        low = np.full(len(units), bool(seeds) and job.by_differences) & single & ~gone
        change = low * MIXED * _largest_change(with_, without, row_unit, gone)
        made = Retrained.of(
            np.where(low, f"{self.name}, mixed precision", self.name).astype(object),
            units,
            seeds,
            asked.rows,
            with_,
            without,
            error=np.where(gone, 0.0, np.maximum(ROUNDING, change)),
            undefined={int(k): VANISHED for k in np.flatnonzero(gone)},
        )
        return made, units[:0]

    def subsets(self, subject: Subject, masks: NDArray[np.bool_], seeds: Seeds, fleet: Fleet) -> Shadows | None:
        """Return models on subsets of the pool if one seed serves all: models of different seeds share no batches."""
        each = tuple(seeds) * len(masks) if len(seeds) == 1 else tuple(seeds)
        X, y = design.matrix(subject), subject.data.pool()[1]
        if len(set(each)) != 1 or not np.isin(y, subject.classes).all():
            return None
        codes = np.searchsorted(subject.classes, y)
        if any(len(np.unique(codes[mask])) < len(subject.classes) for mask in masks):
            return None
        log_p = _Job(subject, each[0]).everywhere(X, codes, masks)
        status = np.full(len(masks), Status.EXACT, dtype=object)
        return Shadows(masks, log_p, each, status, self.name)


def recipe_of(subject: Subject) -> TorchTraining | None:
    """Return the declarative recipe, or None; nothing of the user's is imported."""
    payload = subject.recipe.payload
    if payload["kind"] != "estimator" or payload["predict"] is not None:
        return None
    estimator = payload["estimator"]
    if estimator.get("class") != CLASS:
        return None
    if estimator["params"].get("module") is not None:
        return TorchTraining(module=str(estimator["params"]["module"]))
    made = subject.recipe.estimator_of(CLASS)
    return made if type(made) is TorchTraining else None


class _Job:
    """One seed of one recipe: trains any number of models on subsets of records, some at a time."""

    def __init__(self, subject: Subject, seed: int | None, *, mixed: bool = False) -> None:
        import torch

        from privgate.families.networks import perceptron_differences

        recipe = recipe_of(subject)
        if recipe is None:
            raise TypeError("supports() refuses this recipe")
        recipe.check()
        self.recipe = recipe if seed is None else recipe.set_params(random_state=seed)
        self.device = resolve_device(recipe.device)
        self.n, self.K = subject.data.n, len(subject.classes)
        self.pool = np.ascontiguousarray(design.matrix(subject), dtype=np.float32)
        self.labels = subject.label_codes
        self.content, self.keys = record_keys(self.pool[: self.n], subject.data.y)
        self.y = subject.data.pool()[1] if subject.data.candidates is not None else subject.data.y
        self.X = torch.from_numpy(self.pool).to(self.device)
        self.by_differences = mixed and not perceptron_differences.refusal(recipe, self.n, self.pool.shape[1])

    def _batchwise(self, keep: NDArray[np.bool_], X: Any, labels: Any, keys: Any) -> Any:
        """Yield (models, trained perceptrons) for groups of models that have the same number of batches."""
        import torch

        from privgate.families.networks.perceptron_differences import Differences
        from privgate.families.networks.perceptrons import Perceptrons

        keep, width = stand_ins(keep, keys[0]), int(self.recipe.hidden[0])
        sizes = keep.sum(axis=1)
        counts = np.array([n_batches(int(k), self.recipe.batch_size) for k in sizes])
        low = (sizes == len(X) - 1) & self.by_differences
        for count, by_differences in sorted(set(zip(counts.tolist(), low.tolist(), strict=True))):
            members = np.flatnonzero((counts == count) & (low == by_differences))
            kind: Any = Differences if by_differences else Perceptrons
            together = kind.together(len(X) if by_differences else X.shape[1], width)
            for begin in range(0, len(members), together):
                part = members[begin : begin + together]
                with torch.no_grad(), torch.random.fork_rng(devices=[]):
                    torch.manual_seed(self.recipe.random_state or 0)
                    start = self.recipe.network(X.shape[1], self.K)
                    nets = kind(self.recipe, start, len(part), self.device)
                    nets.train(X, labels, keys[1], keep[part], count)
                    yield part, nets

    def answers(self, keep: NDArray[np.bool_], model: Index, query: Index) -> NDArray[np.float64]:
        """Return log-probabilities (R, K) of model ``model[r]``, trained on ``keep[model[r]]``, at pool rows."""
        import torch

        labels = torch.from_numpy(self.labels).to(self.device)
        out = np.empty((len(query), self.K))
        for part, nets in self._batchwise(keep, self.X[: self.n], labels, (self.content, self.keys)):
            place = np.full(len(keep), -1)
            place[part] = np.arange(len(part))
            rows = np.flatnonzero(place[model] >= 0)
            with torch.no_grad():
                if len(rows) > 8 * len(part) and len(np.unique(query[rows])) < len(rows):
                    unique, inverse = np.unique(query[rows], return_inverse=True)
                    out[rows] = nets.log_probabilities_of_all(self.X[torch.from_numpy(unique)])[
                        place[model[rows]], inverse
                    ]
                else:
                    out[rows] = nets.log_probabilities(self.X, place[model[rows]], query[rows])
        return out

    def everywhere(self, X: Any, codes: Index, masks: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return log-probabilities (N, P, K) of models trained on subsets of the pool, at all of it."""
        import torch

        keys, labels = record_keys(self.pool, self.y), torch.from_numpy(codes.astype(np.int64)).to(self.device)
        out = np.empty((len(masks), len(X), self.K))
        for part, nets in self._batchwise(np.asarray(masks), self.X, labels, keys):
            with torch.no_grad():
                out[part] = nets.log_probabilities_of_all(self.X)
        return out


def _largest_change(
    with_: NDArray[np.float64], without: NDArray[np.float64], row_unit: Index, gone: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return each unit's largest change of a log-probability, nats; 0 where there is no model without it."""
    change = np.zeros(len(gone))
    live = ~gone[row_unit]
    np.maximum.at(change, row_unit[live], np.abs(with_[:, live] - without[:, live]).max(axis=(0, 2)))
    return change


ENGINE = TorchNets()
