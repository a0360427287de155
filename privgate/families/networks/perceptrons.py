"""Many perceptrons trained at once: same start, same batches, each without some records.

All models share the batches, so the first layer of all of them is one matrix product; deeper layers are batched
products. What is left out has weight 0 in its batch, which is exactly its absence, because nothing else depends on it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from privgate.models.record_keyed import Keys, batches, kept_units
from privgate.torch_recipe import TorchTraining

#: bytes of first-layer weights kept together: beyond, they no longer stay near the processor
NEAR = 12_000_000


@dataclass(eq=False)
class _State:
    """Parameters of M models, in the order of layers: first layer (d, M h), deeper ones (M, out, in); biases alike."""

    weights: list[torch.Tensor]
    biases: list[torch.Tensor]

    def all(self) -> list[torch.Tensor]:
        return [*self.weights, *self.biases]


class Perceptrons:
    """M copies of one perceptron, trained together.

    Parameters
    ----------
    recipe : TorchTraining
        The built-in perceptron.
    start : torch.nn.Module
        Untrained network whose weights every model starts from.
    models : int
        M.
    device : str
    """

    def __init__(self, recipe: TorchTraining, start: Any, models: int, device: str) -> None:
        self.recipe, self.models, self.device = recipe, models, device
        self.lr = recipe.rate(0)
        layers = [(x.weight.detach(), x.bias.detach()) for x in start.layers]
        first, rest = layers[0], layers[1:]
        self.width = first[0].shape[0]
        self.state = _State(
            [first[0].T.repeat(1, models), *(w.repeat(models, 1, 1) for w, _ in rest)],
            [first[1].repeat(models), *(b.repeat(models, 1)[:, None, :] for _, b in rest)],
        )
        for group in (self.state.weights, self.state.biases):
            group[:] = [t.to(device).contiguous() for t in group]
        kinds = 2 if recipe.optimizer == "adam" else int(recipe.momentum > 0)
        self._memory = [[torch.zeros_like(p) for p in self.state.all()] for _ in range(kinds)]
        self._steps = np.zeros(models, dtype=np.int64)

    @staticmethod
    def together(n_features: int, width: int) -> int:
        """Return how many models to train at once."""
        return int(np.clip(NEAR // (4 * n_features * width), 8, 1024))

    def train(self, X: torch.Tensor, labels: torch.Tensor, keys: Keys, keep: NDArray[np.bool_], count: int) -> None:
        """Train all models for all epochs.

        Parameters
        ----------
        X : float32 tensor of shape (n, d)
        labels : int64 tensor of shape (n,)
        keys : uint64 array of shape (n,)
        keep : bool array of shape (M, n)
            Which records each model is trained on.
        count : int
            Batches an epoch.
        """
        recipe, seed = self.recipe, self.recipe.random_state or 0
        classes = self.state.biases[-1].shape[-1]
        hot = torch.nn.functional.one_hot(labels, classes).to(X)
        kept = torch.from_numpy(keep).to(X)
        for epoch in range(recipe.epochs):
            self.lr = recipe.rate(epoch)
            for rows in batches(keys, seed, epoch, count):
                here = keep[:, rows]
                rows = rows[here.any(axis=0)]  # noqa: PLW2901  nobody trains on the others
                if not len(rows):
                    continue
                idle = np.flatnonzero(~here.any(axis=1))
                index = torch.from_numpy(rows).to(self.device)
                weight = kept[:, index]
                weight = weight / weight.sum(1, keepdim=True).clamp_min(1)
                masks = self._dropout(keys[rows], seed, epoch)
                saved = self._save(idle)
                self._steps += 1
                self._step(X[index], hot[index], weight, masks)
                self._restore(idle, saved)

    def _dropout(self, keys: Keys, seed: int, epoch: int) -> list[torch.Tensor]:
        p = float(self.recipe.dropout)
        if not p:
            return []
        sizes = [self.width, *(w.shape[1] for w in self.state.weights[1:-1])]
        drawn = [
            kept_units(keys, seed, epoch, layer=k, units=units, dropout=p) / (1 - p) for k, units in enumerate(sizes)
        ]
        return [torch.from_numpy(m.astype(np.float32)).to(self.device) for m in drawn]

    def _step(self, x: torch.Tensor, hot: torch.Tensor, weight: torch.Tensor, masks: list[torch.Tensor]) -> None:
        """Make one step of every model: forward, backward, update."""
        inputs, outputs = self._forward(x, masks)
        D = softmax(outputs).sub_(hot).mul_(weight[:, :, None])  # (M, B, K)
        gradients: list[tuple[torch.Tensor, torch.Tensor]] = []
        for layer in range(len(self.state.weights) - 1, 0, -1):
            values = inputs[layer - 1]
            back = torch.bmm(D, self.state.weights[layer])
            gradients.append((torch.bmm(D.transpose(1, 2), values[0]), D.sum(1, keepdim=True)))
            D = activation_gradient(back, *values[1:], self.recipe.activation)
        batch = len(x)
        D0 = D.transpose(0, 1).reshape(batch, -1)
        if self._plain:
            self.state.weights[0].addmm_(x.t(), D0, alpha=-self.lr)
            self.state.biases[0].sub_(D0.sum(0), alpha=self.lr)
            for layer, (w, b) in zip(range(len(self.state.weights) - 1, 0, -1), gradients, strict=True):
                self.state.weights[layer].sub_(w, alpha=self.lr)
                self.state.biases[layer].sub_(b, alpha=self.lr)
            return
        gradients.append((x.t() @ D0, D0.sum(0)))
        ordered = gradients[::-1]
        self._update([w for w, _ in ordered] + [b for _, b in ordered])

    @property
    def _plain(self) -> bool:
        return self.recipe.optimizer == "sgd" and self.recipe.momentum == 0 and self.recipe.weight_decay == 0

    def _forward(
        self, x: torch.Tensor, masks: list[torch.Tensor]
    ) -> tuple[list[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]], torch.Tensor]:
        """Return (input of each deeper layer, activation before dropout, mask) and the logits (M, B, K)."""
        Z = torch.addmm(self.state.biases[0], x, self.state.weights[0]).view(len(x), self.models, -1).transpose(0, 1)
        kept = []
        for layer in range(1, len(self.state.weights)):
            H = activation(Z, self.recipe.activation)
            mask = masks[layer - 1] if masks else None
            inputs = H if mask is None else H * mask
            kept.append((inputs, H, mask))
            Z = torch.baddbmm(self.state.biases[layer], inputs, self.state.weights[layer].transpose(1, 2))
        return kept, Z

    def _update(self, gradients: list[torch.Tensor]) -> None:
        """Apply the optimizer, as ``torch.optim`` does it."""
        recipe, parameters = self.recipe, self.state.all()
        if recipe.weight_decay:
            gradients = [g.add(p, alpha=recipe.weight_decay) for g, p in zip(gradients, parameters, strict=True)]
        if recipe.optimizer == "sgd":
            if recipe.momentum:
                for m, g in zip(self._memory[0], gradients, strict=True):
                    m.mul_(recipe.momentum).add_(g)
                gradients = self._memory[0]
            for p, g in zip(parameters, gradients, strict=True):
                p.sub_(g, alpha=self.lr)
            return
        first, second = 1 - 0.9**self._steps, np.sqrt(1 - 0.999**self._steps)
        for k, (p, g, m, v) in enumerate(zip(parameters, gradients, *self._memory, strict=True)):
            m.lerp_(g, 0.1)
            v.mul_(0.999).addcmul_(g, g, value=0.001)
            size, root = self._by_model(self.lr / first, k), self._by_model(second, k)
            p.sub_(m * size / (v.sqrt() / root + 1e-8))

    def _by_model(self, values: NDArray[Any], k: int) -> Any:
        """Return one number a model, shaped to multiply parameter k; a float where all are equal."""
        if (values == values[0]).all():
            return float(values[0])
        made = torch.from_numpy(values.astype(np.float32)).to(self.device)
        return made.repeat_interleave(self.width) if k in (0, len(self.state.weights)) else made[:, None, None]

    def _slices(self, models: NDArray[np.int64]) -> list[torch.Tensor]:
        index = torch.from_numpy(models).to(self.device)
        made = []
        for group in (self.state.all(), *self._memory):
            for k, t in enumerate(group):
                first = k in (0, len(self.state.weights))
                made.append(
                    t.view(*t.shape[:-1], self.models, -1)[..., index, :].clone() if first else t[index].clone()
                )
        return made

    def _save(self, idle: NDArray[np.int64]) -> list[torch.Tensor]:
        """Keep the state of models whose batch is empty: an empty batch is no step, not even of momentum."""
        return [] if self._plain or not len(idle) else self._slices(idle)

    def _restore(self, idle: NDArray[np.int64], saved: list[torch.Tensor]) -> None:
        self._steps[idle] -= 1
        if not saved:
            return
        index, at = torch.from_numpy(idle).to(self.device), iter(saved)
        for group in (self.state.all(), *self._memory):
            for k, t in enumerate(group):
                if k in (0, len(self.state.weights)):
                    t.view(*t.shape[:-1], self.models, -1)[..., index, :] = next(at)
                else:
                    t[index] = next(at)

    def parameters(self) -> torch.Tensor:
        """Return all parameters of each model, (M, P)."""
        w, b = self.state.weights, self.state.biases
        first = w[0].view(-1, self.models, self.width).transpose(0, 1).reshape(self.models, -1)
        rest = [t.reshape(self.models, -1) for t in (b[0].view(self.models, -1), *w[1:], *b[1:])]
        return torch.cat([first, *rest], dim=1)

    def take(self, flat: torch.Tensor) -> None:
        """Take the parameters of each model, as ``parameters`` gave them."""
        w, b, at = self.state.weights, self.state.biases, 0
        for group, k in [(w, 0), (b, 0), *((w, k) for k in range(1, len(w))), *((b, k) for k in range(1, len(b)))]:
            size = group[k].numel() // self.models
            part = flat[:, at : at + size].to(self.device)
            if group is w and k == 0:
                part = part.view(self.models, -1, self.width).transpose(0, 1)
            group[k] = part.reshape(group[k].shape).contiguous()
            at += size

    def log_probabilities(
        self, X: torch.Tensor, model: NDArray[np.int64], row: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return log-probabilities (R, K) of model ``model[r]`` on row ``row[r]`` of X."""
        out = []
        first = self.state.weights[0].view(X.shape[1], self.models, self.width)
        bias = self.state.biases[0].view(self.models, self.width)
        for begin in range(0, len(row), 64):
            m = torch.from_numpy(model[begin : begin + 64]).to(self.device)
            x = X[torch.from_numpy(row[begin : begin + 64]).to(self.device)]
            Z = torch.einsum("rd,drh->rh", x, first[:, m]) + bias[m]
            for w, b in zip(self.state.weights[1:], self.state.biases[1:], strict=True):
                Z = torch.baddbmm(b[m], activation(Z, self.recipe.activation)[:, None], w[m].transpose(1, 2))[:, 0]
            out.append(torch.log_softmax(Z.double(), 1).cpu().numpy())
        return np.concatenate(out) if out else np.zeros((0, self.state.biases[-1].shape[-1]))

    def log_probabilities_of_all(self, X: torch.Tensor) -> NDArray[np.float64]:
        """Return log-probabilities (M, Q, K) of every model on every row of X."""
        parts = [self._forward(X[k : k + 256], [])[1] for k in range(0, len(X), 256)]
        return np.asarray(torch.log_softmax(torch.cat(parts, 1).double(), 2).cpu().numpy())


def activation(Z: torch.Tensor, name: str) -> torch.Tensor:
    """Return the activation of Z, which may be overwritten."""
    if name == "relu":
        return torch.relu(Z)
    # tanh(z) = 2 sigmoid(2 z) - 1: three times faster here, equal to rounding
    return Z.mul_(2).sigmoid_().mul_(2).sub_(1) if Z.device.type == "cpu" else Z.tanh_()


def activation_gradient(back: torch.Tensor, H: torch.Tensor, mask: torch.Tensor | None, name: str) -> torch.Tensor:
    """Return the gradient by what went into the activation, from that by what came out of it, H."""
    if mask is not None:
        back = back * mask
    return back * (H > 0) if name == "relu" else torch.addcmul(back, back * H, H, value=-1)


def softmax(Z: torch.Tensor) -> torch.Tensor:
    """Return probabilities along the last of three axes; Z is overwritten."""
    Z.sub_(Z.amax(2, keepdim=True)).exp_()
    return Z.div_(Z.sum(2, keepdim=True))
