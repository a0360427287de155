"""A block of networks in a worker: coupled models of one recipe trained together, each without some records."""

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.errors import SubjectError
from privgate.models.record_keyed import n_batches, record_keys, stand_ins
from privgate.torch_recipe import TorchTraining, resolve_device
from privgate.training.fit import Block, Fit
from privgate.training.payload import Opened

#: share of a GPU's memory that one block may fill
DEVICE_SHARE = 0.5
#: tensors as large as its parameters that a model needs: themselves, gradients, two moments, what a step makes
HELD = 6


#: records of the batch on which a module is tried: one of its own, up to so many
_TRIED = 64


def trained(opened: Opened, block: Block) -> tuple[Float, tuple[bytes, ...]]:
    """Return log-probabilities of a block's models at their queries, one after the other, (rows, K), and the models."""
    seed, on_pool = block.fits[0].seed, block.fits[0].members is not None
    name = (__name__, seed, on_pool, block.options)
    if name not in opened.prepared:
        opened.prepared = {name: _Job(opened, seed, on_pool=on_pool)}
    job: _Job = opened.prepared[name]
    return job.answers(block)


class _Job:
    """One seed of one recipe: trains any number of models on subsets of the same records."""

    def __init__(self, opened: Opened, seed: int | None, *, on_pool: bool) -> None:
        import torch

        recipe = opened.recipe.estimator
        if type(recipe) is not TorchTraining:
            raise SubjectError("the recipe is not privgate's TorchTraining")
        recipe.check()
        self.recipe = recipe if seed is None else recipe.set_params(random_state=seed)
        self.device = resolve_device(recipe.device)
        pool = np.ascontiguousarray(opened.X, dtype=np.float32)
        self.size, self.K = len(pool) if on_pool else opened.n, len(opened.classes)
        y = opened.y[: self.size]
        self.content, self.keys = record_keys(pool[: self.size], y)
        self.X = torch.from_numpy(pool).to(self.device)
        self.labels = torch.from_numpy(np.searchsorted(opened.classes, y)).to(self.device)
        self.own = recipe.module is not None or recipe.loss is not None
        self.most = self._look_at() if self.own else 0

    def answers(self, block: Block) -> tuple[Float, tuple[bytes, ...]]:
        """Return log-probabilities (rows, K) of each model at its queries, and what is kept of the models."""
        import torch

        fits, kept = block.fits, [b""] * len(block.fits)
        model = np.repeat(np.arange(len(fits)), [fit.rows for fit in fits])
        query = np.concatenate([fit.queries for fit in fits])
        out = np.empty((len(query), self.K))
        for part, nets in self._models(block):
            if block.keep:
                for k, body in zip(part.tolist(), _packed(nets, block.keep), strict=False):
                    kept[k] = body
            place = np.full(len(fits), -1)
            place[part] = np.arange(len(part))
            rows = np.flatnonzero(place[model] >= 0)
            with torch.no_grad():
                if len(rows) > 8 * len(part) and len(np.unique(query[rows])) < len(rows):
                    unique, inverse = np.unique(query[rows], return_inverse=True)
                    everywhere = nets.log_probabilities_of_all(self.X[torch.from_numpy(unique)])
                    out[rows] = everywhere[place[model[rows]], inverse]
                else:
                    out[rows] = nets.log_probabilities(self.X, place[model[rows]], query[rows])
        return out, tuple(kept)

    def _models(self, block: Block) -> Iterator[tuple[Index, Any]]:
        """Yield (models, networks): those that are known already, then those that are trained now."""
        import torch

        known = np.zeros(len(block.fits), dtype=bool)
        if any(block.models):
            known[:] = [len(body) == 4 * self._parameters for body in block.models]
        kind, most = self._kind()
        here = np.flatnonzero(known)
        for begin in range(0, len(here), most):
            part = here[begin : begin + most]
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                nets = kind(self.recipe, self._start(), len(part), self.device)
                flat = np.frombuffer(b"".join(block.models[k] for k in part.tolist()), dtype="<f4")
                nets.take(torch.from_numpy(flat.reshape(len(part), -1).astype(np.float32)))
            yield part, nets
        rest = np.flatnonzero(~known)
        if len(rest):
            for part, nets in self._trained(self._keep(tuple(block.fits[k] for k in rest.tolist()))):
                yield rest[part], nets

    @cached_property
    def _parameters(self) -> int:
        """Numbers that are trained of one model."""
        import torch

        with torch.random.fork_rng(devices=[]):
            return sum(p.numel() for p in self._start().parameters() if p.requires_grad)

    def _keep(self, fits: tuple[Fit, ...]) -> NDArray[np.bool_]:
        """Return which records each model is trained on, bool array (M, size)."""
        keep = np.ones((len(fits), self.size), dtype=bool)
        for row, fit in zip(keep, fits, strict=True):
            if fit.left_out is not None:
                row[fit.left_out] = False
            else:
                row[:] = False
                row[fit.members] = True
        return stand_ins(keep, self.content)

    def _trained(self, keep: NDArray[np.bool_]) -> Iterator[tuple[Index, Any]]:
        """Yield (models, trained networks) for groups of models that have the same number of batches."""
        import torch

        X = self.X[: self.size]
        sizes = keep.sum(axis=1)
        counts = np.array([n_batches(int(k), self.recipe.batch_size) for k in sizes])
        for count in sorted(set(counts.tolist())):
            members = np.flatnonzero(counts == count)
            kind, most = self._kind()
            for begin in range(0, len(members), most):
                part = members[begin : begin + most]
                with torch.no_grad(), torch.random.fork_rng(devices=[]):
                    nets = kind(self.recipe, self._start(), len(part), self.device)
                    nets.train(X, self.labels, self.keys, keep[part], count)
                yield part, nets

    def _start(self) -> Any:
        """Return the untrained network, from torch's generator as a single training leaves it."""
        import torch

        torch.manual_seed(self.recipe.random_state or 0)
        return self.recipe.network(self.X.shape[1], self.K)

    def _kind(self) -> tuple[Any, int]:
        """Return what trains models together, and how many of them at once."""
        if not self.own:
            from privgate.families.networks.perceptrons import Perceptrons

            most = Perceptrons.together(self.X.shape[1], int(self.recipe.hidden[0]))
            if self.X.device.type == "cuda":
                sizes = (self.X.shape[1], *self.recipe.hidden, self.K)
                held = sum(a * b for a, b in pairwise(sizes))
                most = on_device(self.X.device, held, self.recipe.batch_size * sum(sizes[1:]))
            return Perceptrons, most
        from privgate.families.networks.copies import Copies

        return Copies, self.most

    def _look_at(self) -> int:
        """Return how many copies of somebody's own module or loss to train at once; say why if it is not covered."""
        import torch

        from privgate.families.networks import copies

        if self.recipe.module is None and self.recipe.dropout:
            raise SubjectError("the built-in perceptron's dropout beside a loss of the recipe's own is not covered")
        some = slice(0, min(_TRIED, max(2, self.recipe.batch_size), self.size))
        with torch.random.fork_rng(devices=[]):
            start = self._start().to(self.device)
            why = copies.refusal(self.recipe, start, self.X[some], self.labels[some], self.keys[some])
            if why:
                raise SubjectError(why)
            parameters, values = copies.sizes(start, self.X)
            values *= self.recipe.batch_size
            if self.X.device.type == "cuda":
                return on_device(self.X.device, parameters, values)
            return copies.together(parameters, values)


def _packed(nets: Any, most: int) -> list[bytes]:
    """Return each model's parameters as bytes; nothing where they are many, or differences from others."""
    given = getattr(nets, "parameters", None)
    if given is None:
        return []
    flat = np.ascontiguousarray(given().detach().cpu().numpy(), dtype="<f4")
    return [row.tobytes() for row in flat] if flat[0].nbytes <= most else []


def on_device(device: Any, parameters: int, values: int) -> int:
    """Return how many models fit on a GPU, each of so many parameters and values between layers a batch."""
    import torch

    room = DEVICE_SHARE * torch.cuda.mem_get_info(device)[1]
    return int(np.clip(room / (4 * (HELD * parameters + 3 * values)), 1, 65536))
