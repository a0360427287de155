"""Perceptrons that each miss one record, as differences from one that misses none; the differences in bfloat16.

Plain SGD keeps the first layer in the span of the records: W = W0 - X^T C, with one row of C a record. A model without
a record stays close to a reference trained with all of them under the same batches, so only C's difference goes through
the large matrix product, in half the bits: what is rounded is already small. The row of the missing record itself is
large, and kept apart in single precision. Pays where there are few records for the number of features (n < 3 d).
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from privgate.families.networks.perceptrons import activation, activation_gradient, softmax
from privgate.models.record_keyed import Keys, batches
from privgate.torch_recipe import TorchTraining

#: bytes of differences kept together
NEAR = 26_000_000
#: records: their products with one another are kept
MOST = 8192

Layers = list[tuple[torch.Tensor, torch.Tensor]]


def refusal(recipe: TorchTraining, records: int, features: int) -> str:
    """Return why differences in bfloat16 do not cover a recipe, or do not pay; empty if they do."""
    if recipe.optimizer != "sgd" or recipe.momentum or recipe.weight_decay or recipe.dropout:
        return "training is not plain SGD"
    if recipe.activation != "tanh":
        return "units that are switched off by the last bit of their input amplify rounding"  # 2 % were seen
    if records >= 3 * features or records > MOST:
        return "there are too many records for the number of features"
    return ""


class Differences:
    """M copies of one perceptron, each trained without one record, by plain SGD without dropout.

    A drop-in for ``Perceptrons``, whose parameters it has; each row of ``keep`` misses exactly one record.
    """

    def __init__(self, recipe: TorchTraining, start: Any, models: int, device: str) -> None:
        self.recipe, self.models, self.device = recipe, models, device
        self.lr = recipe.rate(0)
        layers = [(x.weight.detach().to(device), x.bias.detach().to(device)) for x in start.layers]
        self.first = layers[0][0].T.contiguous(), layers[0][1]
        self.width = self.first[0].shape[1]
        self.reference: Layers = [(w[None].clone(), b[None, None].clone()) for w, b in layers[1:]]
        self.layers: Layers = [(w.repeat(models, 1, 1), b.repeat(models, 1)[:, None, :]) for w, b in layers[1:]]

    @staticmethod
    def together(n_records: int, width: int) -> int:
        """Return how many models to train at once."""
        return int(np.clip(NEAR // (6 * n_records * width), 8, 1024))

    def train(self, X: torch.Tensor, labels: torch.Tensor, keys: Keys, keep: NDArray[np.bool_], count: int) -> None:
        """Train all models for all epochs; as ``Perceptrons.train``."""
        n, wide = len(X), self.models * self.width
        self.X, self.absent = X, keep.argmin(axis=1)
        self._own_at = torch.from_numpy(self.absent).to(self.device)
        self.C = X.new_zeros(n, self.width)
        self.difference, self.own = X.new_zeros(n, wide), X.new_zeros(self.models, self.width)
        self._low = torch.zeros(n, wide, dtype=torch.bfloat16, device=X.device)
        self._K = self._products(X)
        self._K_low, self._K_own = self._K.bfloat16(), self._K[:, self._own_at].contiguous()
        self._start = torch.addmm(self.first[1], X, self.first[0])
        hot = torch.nn.functional.one_hot(labels, self.layers[-1][1].shape[-1]).to(X)
        for epoch in range(self.recipe.epochs):
            self.lr = self.recipe.rate(epoch)
            for rows in batches(keys, self.recipe.random_state or 0, epoch, count):
                if len(rows):
                    self._step(rows, hot)

    def _step(self, rows: NDArray[np.int64], hot: torch.Tensor) -> None:
        """Make one step of the reference, and of every model as a difference from it."""
        index, size, lr = torch.from_numpy(rows).to(self.device), len(rows), self.lr
        place = np.minimum(np.searchsorted(rows, self.absent), size - 1)
        missing = np.flatnonzero(rows[place] == self.absent)
        model, position = (torch.from_numpy(v).to(self.device) for v in (missing, place[missing]))
        weight = hot.new_full((self.models, size), 1 / size)
        weight[model] = 1 / max(size - 1, 1)
        weight[model, position] = 0
        Z = self._start[index] - self._K[index] @ self.C
        D = self._deeper(Z.clone()[None], self.reference, hot[index], weight.new_full((1, size), 1 / size))
        moved = torch.mm(self._K_low[index], self._low).view(size, self.models, -1)
        each = torch.addcmul(Z[:, None, :], self._K_own[index][:, :, None], self.own[None], value=-1).sub_(moved)
        G = self._deeper(each.transpose(0, 1), self.layers, hot[index], weight).sub_(D)
        self.own[model] += lr * G[model, position]
        G[model, position] = 0
        self.C.index_add_(0, index, D[0], alpha=lr)
        changed = self.difference.index_select(0, index).add_(G.transpose(0, 1).reshape(size, -1), alpha=lr)
        self.difference.index_copy_(0, index, changed)
        self._low.index_copy_(0, index, changed.bfloat16())

    def _deeper(self, Z: torch.Tensor, layers: Layers, hot: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Return the gradient by the first layer's output Z (M, B, h), which is overwritten; update deeper layers."""
        name, values = self.recipe.activation, []
        for w, b in layers:
            values.append(activation(Z, name))
            Z = torch.baddbmm(b, values[-1], w.transpose(1, 2))
        D = softmax(Z).sub_(hot).mul_(weight[:, :, None])
        for (w, b), H in zip(reversed(layers), reversed(values), strict=True):
            back = torch.bmm(D, w)
            w.baddbmm_(D.transpose(1, 2), H, alpha=-self.lr)
            b.sub_(D.sum(1, keepdim=True), alpha=self.lr)
            D = activation_gradient(back, H, None, name)
        return D

    def _products(self, X: torch.Tensor) -> torch.Tensor:
        """Return inner products with the training records; the bias is a feature that is always 1."""
        return X @ self.X.t() + 1

    def log_probabilities(
        self, X: torch.Tensor, model: NDArray[np.int64], row: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return log-probabilities (R, K) of model ``model[r]`` on row ``row[r]`` of X."""
        out = []
        for begin in range(0, len(row), 64):
            m = torch.from_numpy(model[begin : begin + 64]).to(self.device)
            x = X[torch.from_numpy(row[begin : begin + 64]).to(self.device)]
            K = self._products(x)
            own = K.gather(1, self._own_at[m][:, None])[:, 0]
            Z = torch.addmm(self.first[1], x, self.first[0]) - K @ self.C - own[:, None] * self.own[m]
            Z -= torch.einsum("rn,nrh->rh", K, self.difference.view(len(self.X), self.models, -1)[:, m])
            out.append(self._outputs(Z[:, None], [(w[m], b[m]) for w, b in self.layers])[:, 0])
        return np.concatenate(out) if out else np.zeros((0, self.layers[-1][1].shape[-1]))

    def log_probabilities_of_all(self, X: torch.Tensor) -> NDArray[np.float64]:
        """Return log-probabilities (M, Q, K) of every model on every row of X."""
        out = []
        for begin in range(0, len(X), 256):
            x = X[begin : begin + 256]
            K = self._products(x)
            Z = (torch.addmm(self.first[1], x, self.first[0]) - K @ self.C)[:, None, :]
            Z = Z - (K @ self.difference).view(len(x), self.models, -1)
            Z -= K[:, self._own_at][:, :, None] * self.own
            out.append(self._outputs(Z.transpose(0, 1), self.layers))
        return np.concatenate(out, axis=1)

    def _outputs(self, Z: torch.Tensor, layers: Layers) -> NDArray[np.float64]:
        for w, b in layers:
            Z = torch.baddbmm(b, activation(Z, self.recipe.activation), w.transpose(1, 2))
        return np.asarray(torch.log_softmax(Z.double(), 2).cpu().numpy())
