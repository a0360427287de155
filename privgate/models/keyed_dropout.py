"""Dropout keyed by record in anybody's module: the masks of the other records stay when one is left out."""

from typing import Any

import torch
from torch import nn

from privgate.models.record_keyed import kept_units

#: torch's layers and whether a mask holds for whole channels
REPLACED: dict[type, bool] = {nn.Dropout: False, nn.Dropout1d: True, nn.Dropout2d: True, nn.Dropout3d: True}


class KeyedDropout(nn.Module):
    """Stands for one of torch's dropout layers; in training its mask depends on record, epoch and seed alone.

    Parameters
    ----------
    p : float in [0, 1)
    depth : int
        Which of the module's dropout layers this is.
    channels : bool
        Whether whole channels are dropped.
    """

    def __init__(self, p: float, depth: int, *, channels: bool) -> None:
        super().__init__()
        self.p, self.depth, self.channels = p, depth, channels
        #: keys of the records of the batch, seed and epoch
        self.now: tuple[Any, int, int] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x with units of each record dropped and the rest scaled by 1 / (1 - p).

        An input whose first axis is not the records is left to torch's own random numbers.
        """
        if not self.training or self.p == 0:
            return x
        if self.now is None or len(x) != len(self.now[0]):
            return nn.functional.dropout(x, self.p)
        keys, seed, epoch = self.now
        shape = x.shape[1:2] if self.channels else x.shape[1:]
        kept = kept_units(keys, seed, epoch, layer=self.depth, units=shape.numel(), dropout=self.p)
        mask = torch.from_numpy(kept).to(x.device).view(len(x), *shape, *(1 for _ in x.shape[1 + len(shape) :]))
        return x * mask.to(x.dtype) / (1 - self.p)


def key(net: nn.Module) -> nn.Module:
    """Replace torch's dropout layers in a module, in place, and return it."""
    depth = 0
    for parent in list(net.modules()):
        for name, child in list(parent.named_children()):
            p: Any = getattr(child, "p", 1.0)
            if type(child) in REPLACED and p < 1:
                setattr(parent, name, KeyedDropout(p, depth, channels=REPLACED[type(child)]))
                depth += 1
    return net


def tell(net: nn.Module, keys: Any, seed: int, epoch: int) -> None:
    """Say which records the next batch holds."""
    for layer in net.modules():
        if isinstance(layer, KeyedDropout):
            layer.now = (keys, seed, epoch)
