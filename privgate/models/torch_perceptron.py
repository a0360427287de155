"""The perceptron of the declarative torch recipe; imported only where torch is."""

from itertools import pairwise
from typing import Any

import torch
from torch import nn

from privgate.models.record_keyed import kept_units


class Perceptron(nn.Module):
    """Linear layers with an activation between them; dropout keyed by record.

    Parameters
    ----------
    sizes : tuple of int
        Features, hidden units of each layer, classes.
    activation : {"tanh", "relu"}
    dropout : float in [0, 1)
    """

    def __init__(self, sizes: tuple[int, ...], activation: str, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.activation = activation
        self.dropout = dropout

    def forward(self, x: torch.Tensor, keys: Any = None, seed: int = 0, epoch: int = 0) -> torch.Tensor:
        """Return logits; with ``keys`` (training) hidden units are dropped and the rest scaled by 1 / (1 - dropout)."""
        function = torch.tanh if self.activation == "tanh" else torch.relu
        for depth, layer in enumerate(self.layers):
            x = layer(x)
            if depth + 1 == len(self.layers):
                break
            x = function(x)
            if self.dropout and keys is not None:
                kept = torch.from_numpy(
                    kept_units(keys, seed, epoch, layer=depth, units=x.shape[1], dropout=self.dropout)
                )
                x = x * kept.to(x) / (1 - self.dropout)
        return x
