"""Many copies of anybody's module trained at once by ``torch.func``: same start and batches, each without some records.

What is left out has weight 0 in its batch, which is its absence as long as a module's answer about one record depends
on no other; whether it does is tried before anything is trained.
"""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from privgate.arrays import Float
from privgate.families.networks.batching import Batching
from privgate.models.keyed_dropout import tell
from privgate.models.record_keyed import Keys, batches
from privgate.torch_recipe import TorchTraining

Tensors = dict[str, torch.Tensor]

#: bytes of parameters and values between layers of all copies that stay near a processor
NEAR = 24_000_000
_OF_BATCHES = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_OF_RECORDS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
#: logits of one record that may differ by the company it is in, beside rounding
_ALONE = 1e-4
#: records that are tried alone
_TRIED = 5


class Copies:
    """M copies of one module; a drop-in for ``Perceptrons``.

    Parameters
    ----------
    recipe : TorchTraining
    start : torch.nn.Module
        Untrained; every copy starts from its parameters.
    models : int
        M.
    device : str
    """

    def __init__(self, recipe: TorchTraining, start: nn.Module, models: int, device: str) -> None:
        self.recipe, self.models, self.device = recipe, models, device
        self.net = start.to(device)
        self.net.train()
        #: where the copies stand in each parameter: tables of embeddings are read row by row, all copies at once
        self.at = {name: 0 for name, p in self.net.named_parameters() if p.requires_grad}
        tables = (nn.Embedding, nn.EmbeddingBag)
        for name in (f"{n}.weight".lstrip(".") for n, m in self.net.named_modules() if isinstance(m, tables)):
            if name in self.at:
                self.at[name] = 1
        own = dict(self.net.named_parameters())
        self.state: Tensors = {
            name: torch.stack([own[name].detach()] * models, dim).contiguous().requires_grad_()
            for name, dim in self.at.items()
        }
        kinds = 2 if recipe.optimizer == "adam" else int(recipe.momentum > 0)
        self._memory = [{k: torch.zeros_like(p) for k, p in self.state.items()} for _ in range(kinds)]
        self._steps = np.zeros(models, dtype=np.int64)
        self.lr = recipe.rate(0)

    def train(self, X: torch.Tensor, labels: torch.Tensor, keys: Keys, keep: NDArray[np.bool_], count: int) -> None:
        """Train all copies for all epochs; as ``Perceptrons.train``."""
        recipe, seed = self.recipe, self.recipe.random_state or 0
        kept = torch.from_numpy(keep).to(self.device)
        for epoch in range(recipe.epochs):
            self.lr = recipe.rate(epoch)
            for rows in batches(keys, seed, epoch, count):
                here = keep[:, rows]
                rows = rows[here.any(axis=0)]  # noqa: PLW2901  nobody trains on the others
                if not len(rows):
                    continue
                index = torch.from_numpy(rows).to(self.device)
                weight = kept[:, index].double()
                weight = weight / weight.sum(1, keepdim=True).clamp_min(1)
                tell(self.net, keys[rows], seed, epoch)
                self._steps += 1
                idle = np.flatnonzero(~here.any(axis=1))
                with self._unmoved(idle):
                    self._update(self.gradients(X[index], labels[index], weight))

    def gradients(self, x: torch.Tensor, labels: torch.Tensor, weight: torch.Tensor) -> dict[str, torch.Tensor | None]:
        """Return the gradient of every copy's weighted sum of losses, in the shapes of the parameters."""
        with torch.enable_grad():
            each = self.losses(self.logits(x), labels)
            made = torch.autograd.grad((each * weight.to(each)).sum(), list(self.state.values()), allow_unused=True)
        return dict(zip(self.state, made, strict=True))

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits (M, B, K)."""
        with Batching(), sdpa_kernel(SDPBackend.MATH):  # fused kernels of attention are taken copy by copy
            made: torch.Tensor = torch.vmap(lambda p: functional_call(self.net, p, (x,)), (self.at,))(self.state)
        return made

    def losses(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of every record in every copy, (M, B)."""
        if self.recipe.loss is not None:
            made: torch.Tensor = torch.vmap(self.recipe.loss, (0, None))(logits, labels)
            return made
        every = labels.repeat(self.models)
        flat = nn.functional.cross_entropy(logits.flatten(0, 1), every, reduction="none")
        return flat.view(self.models, -1)

    @torch.no_grad()
    def _update(self, gradients: dict[str, torch.Tensor | None]) -> None:
        """Apply the optimizer, as ``torch.optim`` does it: a parameter without a gradient is left alone."""
        recipe = self.recipe
        first, second = 1 - 0.9**self._steps, np.sqrt(1 - 0.999**self._steps)
        for name, p in self.state.items():
            g = gradients[name]
            if g is None:
                continue
            if recipe.weight_decay:
                g = g.add(p, alpha=recipe.weight_decay)
            if recipe.optimizer == "sgd":
                if recipe.momentum:
                    g = self._memory[0][name].mul_(recipe.momentum).add_(g)
                p.sub_(g, alpha=self.lr)
                continue
            m, v = (memory[name] for memory in self._memory)
            m.lerp_(g, 0.1)
            v.mul_(0.999).addcmul_(g, g, value=0.001)
            size, root = self._by_model(self.lr / first, name), self._by_model(second, name)
            p.sub_(m * size / (v.sqrt() / root + 1e-8))

    def _by_model(self, values: NDArray[Any], name: str) -> Any:
        """Return one number a copy, shaped to multiply a parameter; a float where all are equal."""
        if (values == values[0]).all():
            return float(values[0])
        made = torch.from_numpy(values.astype(np.float32)).to(self.device)
        dim, rank = self.at[name], self.state[name].dim()
        return made.view(*(self.models if k == dim else 1 for k in range(rank)))

    @contextmanager
    def _unmoved(self, idle: NDArray[np.int64]) -> Iterator[None]:
        """Keep copies as they are whose batch is empty: an empty batch is no step, not even of momentum."""
        if not len(idle):
            yield
            return
        index = torch.from_numpy(idle).to(self.device)
        groups = (self.state, *self._memory)
        saved = [{k: t.detach().index_select(self.at[k], index) for k, t in group.items()} for group in groups]
        yield
        self._steps[idle] -= 1
        with torch.no_grad():
            for group, before in zip(groups, saved, strict=True):
                for k, t in group.items():
                    t.index_copy_(self.at[k], index, before[k])

    @contextmanager
    def _answering(self) -> Iterator[None]:
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(
            False
        )  # one kernel for a whole layer, which no rule takes through copies
        self.net.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            self.net.train()
            torch.backends.mha.set_fastpath_enabled(fast)

    def parameters(self) -> torch.Tensor:
        """Return all parameters of each copy that are trained, (M, P)."""
        flat = [p.detach().movedim(self.at[name], 0).reshape(self.models, -1) for name, p in self.state.items()]
        return torch.cat(flat, dim=1)

    def take(self, flat: torch.Tensor) -> None:
        """Take the parameters of each copy, as ``parameters`` gave them."""
        at = 0
        for name, p in self.state.items():
            first = p.detach().movedim(self.at[name], 0)
            size = first[0].numel()
            part = flat[:, at : at + size].to(p).view(first.shape)
            self.state[name] = part.movedim(0, self.at[name]).contiguous().requires_grad_()
            at += size

    def log_probabilities(self, X: torch.Tensor, model: NDArray[np.int64], row: NDArray[np.int64]) -> Float:
        """Return log-probabilities (R, K) of copy ``model[r]`` on row ``row[r]`` of X."""
        most = int(np.bincount(model, minlength=self.models).max(initial=0))
        order = np.argsort(model, kind="stable")
        place = np.arange(len(model)) - np.searchsorted(model[order], model[order])
        rows = np.zeros((self.models, most), dtype=np.int64)
        rows[model[order], place] = row[order]
        made = []
        with self._answering():
            for k in range(0, most, 256):
                x = X[torch.from_numpy(rows[:, k : k + 256]).to(self.device)]
                each = torch.vmap(lambda p, x: functional_call(self.net, p, (x,)), (self.at, 0))
                with Batching(), sdpa_kernel(SDPBackend.MATH):
                    made.append(_log_softmax(each(self.state, x)))
        out = np.empty((len(model), made[0].shape[-1])) if made else np.zeros((0, 0))
        out[order] = np.concatenate(made, axis=1)[model[order], place] if made else 0
        return out

    def log_probabilities_of_all(self, X: torch.Tensor) -> Float:
        """Return log-probabilities (M, Q, K) of every copy on every row of X."""
        with self._answering():
            parts = [_log_softmax(self.logits(X[k : k + 256])) for k in range(0, len(X), 256)]
        return np.concatenate(parts, axis=1)


def _log_softmax(logits: torch.Tensor) -> Float:
    return np.asarray(torch.log_softmax(logits.double(), -1).cpu().numpy())


def refusal(recipe: TorchTraining, start: nn.Module, X: torch.Tensor, labels: torch.Tensor, keys: Keys) -> str:
    """Return what of a module ``torch.func`` does not take through copies, or what couples records; empty if nothing.

    Parameters
    ----------
    start : torch.nn.Module
        Untrained, on the device of X.
    X, labels, keys
        A few training records.
    """
    for name, layer in start.named_modules():
        if isinstance(layer, _OF_BATCHES) or (isinstance(layer, _OF_RECORDS) and layer.track_running_stats):
            return f"{type(layer).__name__} ({name or 'the module'}) keeps statistics of whole batches"
    if not any(p.requires_grad for p in start.parameters()):
        return "the module has no parameters to train"
    inside = ["the loss or the gradient"]

    def enter(layer: nn.Module, _inputs: Any) -> None:
        inside.append(type(layer).__name__)

    def leave(_layer: nn.Module, _inputs: Any, _output: Any) -> None:
        inside.pop()

    hooks = [h for m in start.modules() for h in (m.register_forward_pre_hook(enter), m.register_forward_hook(leave))]
    # what is not trained: copies of a kept model do not take it along
    fixed = [*start.buffers(), *(p.detach() for p in start.parameters() if not p.requires_grad)]
    before = [t.clone() for t in fixed]
    try:
        copies = Copies(recipe, start, 2, str(X.device))
        tell(start, keys, 0, 0)
        logits = copies.logits(X)
        losses = copies.losses(logits, labels)
        if logits.dim() != 3 or losses.shape != logits.shape[:2]:
            return "the module's logits or the loss are not one row and one number a record"
        copies.gradients(X, labels, torch.ones_like(losses))
        for k in range(min(_TRIED, len(X))):
            own = slice(k, k + 1)
            tell(start, keys[own], 0, 0)
            if not torch.allclose(copies.logits(X[own])[0, 0], logits[0, k], rtol=_ALONE, atol=_ALONE):
                return "the module's answer about one record depends on the others in its batch, or on chance"
            loss = copies.losses(logits[:, own], labels[own])[0, 0]
            if not torch.allclose(loss, losses[0, k], rtol=_ALONE, atol=_ALONE):
                return "the loss of one record depends on the others in its batch, or on chance"
    except Exception as exc:  # noqa: BLE001  whatever torch raises about a layer is the reason; its words may be data
        traceback.print_exception(exc)  # for the engineer's log
        return f"torch.func does not take {inside[-1]} through copies ({type(exc).__name__})"
    finally:
        for hook in hooks:
            hook.remove()
    if not all(torch.equal(b, t) for b, t in zip(before, fixed, strict=True)):
        return "the module changes buffers or frozen parameters of its own while it is trained"
    return ""


def sizes(start: nn.Module, X: torch.Tensor) -> tuple[int, int]:
    """Return how many parameters a module has, and how many values its layers make of one record."""
    made: list[int] = []

    def note(_layer: nn.Module, _inputs: Any, output: Any) -> None:
        made.append(output.numel() if isinstance(output, torch.Tensor) else 0)

    hooks = [m.register_forward_hook(note) for m in start.modules() if not list(m.children())]
    try:
        with torch.no_grad():
            start(X[:1])
    finally:
        for hook in hooks:
            hook.remove()
    return sum(p.numel() for p in start.parameters()), sum(made)


def together(parameters: int, values: int) -> int:
    """Return how many copies of so many parameters and values a batch stay near a processor."""
    return int(np.clip(NEAR / (4 * (parameters + values)), 8, 256))
