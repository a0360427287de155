"""How ``torch.vmap`` takes the layers that cost most through many models at once: in the layout that suits them.

What is not here is left to vmap's own rules. These differ from them in where the models stand: beside the channels of
an image, in one matrix product with records that all models share, beside the columns of a table of embeddings.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

Many = Callable[..., tuple[torch.Tensor, int] | None]


def _rule(function: Callable[..., Any], many: Many) -> Any:
    """Return a function that does what ``function`` does, and ``many`` over models.

    Parameters
    ----------
    many : callable
        ``many(models, dimensions, *arguments)`` returns (result, where the models stand in it), or None to leave it to
        vmap's own rule.
    """

    class Rule(torch.autograd.Function):
        generate_vmap_rule = False

        @staticmethod
        def forward(*arguments: Any) -> Any:
            return function(*arguments)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            """Keep nothing: what is differentiated belongs to many models."""

        @staticmethod
        def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> Any:
            made = many(info.batch_size, in_dims, *arguments)
            return (torch.vmap(function, in_dims)(*arguments), 0) if made is None else made

    return Rule.apply


def _linear(models: int, dims: Any, x: Any, weight: Any, bias: Any) -> tuple[torch.Tensor, int] | None:
    if dims[1] is None or (bias is not None and dims[2] is None):
        return None
    weight = weight.movedim(dims[1], 0)
    bias = None if bias is None else bias.movedim(dims[2], 0)
    out, features = weight.shape[1:]
    if dims[0] is None:
        rows, flat = x.reshape(-1, features), weight.reshape(-1, features).t()
        made = rows @ flat if bias is None else torch.addmm(bias.reshape(-1), rows, flat)
        return made.view(*x.shape[:-1], models, out), x.dim() - 1
    x = x.movedim(dims[0], 0)
    rows = x if x.dim() == 3 else x.reshape(models, -1, features)
    if x.dim() == 2:
        rows = x[:, None]
    flat = weight.transpose(1, 2)
    made = rows @ flat if bias is None else torch.baddbmm(bias[:, None], rows, flat)
    return made.view(*x.shape[:-1], out), 0


def _beside_channels(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Return images (B, models x channels, H, W), channels last in memory."""
    return x.movedim(dim, 1).flatten(1, 2).contiguous(memory_format=torch.channels_last)


def _apart(x: torch.Tensor, models: int) -> torch.Tensor:
    """Return (B, models, channels, …) from images of all models."""
    return x.view(len(x), models, x.shape[1] // models, *x.shape[2:])


def _conv2d(models: int, dims: Any, x: Any, weight: Any, bias: Any, *rest: Any) -> tuple[torch.Tensor, int] | None:
    stride, padding, dilation, groups = rest
    if dims[1] is None or (bias is not None and dims[2] is None) or x.dim() != 4 + (dims[0] is not None):
        return None
    weight = weight.movedim(dims[1], 0).flatten(0, 1)
    bias = None if bias is None else bias.movedim(dims[2], 0).flatten()
    if dims[0] is None and groups != 1:
        return None
    images = x if dims[0] is None else _beside_channels(x, dims[0])
    made = functional.conv2d(
        images.contiguous(memory_format=torch.channels_last),
        weight.contiguous(memory_format=torch.channels_last),
        bias,
        stride,
        padding,
        dilation,
        groups if dims[0] is None else groups * models,
    )
    return _apart(made.contiguous(memory_format=torch.channels_last), models), 1


def _pooled(function: Callable[..., Any]) -> Many:
    def many(models: int, dims: Any, x: Any, *rest: Any) -> tuple[torch.Tensor, int] | None:
        return None if x.dim() != 5 else (_apart(function(_beside_channels(x, dims[0]), *rest), models), 1)

    return many


def _group_norm(
    models: int, dims: Any, x: Any, groups: Any, weight: Any, *rest: Any
) -> tuple[torch.Tensor, int] | None:
    bias, eps = rest
    if dims[0] is None or (weight is None) != (bias is None):
        return None
    scale, shift = (
        None if v is None else (v.expand(models, -1) if d is None else v.movedim(d, 0)).flatten()
        for v, d in ((weight, dims[2]), (bias, dims[3]))
    )
    return _apart(
        functional.group_norm(x.movedim(dims[0], 1).flatten(1, 2), groups * models, scale, shift, eps), models
    ), 1


def _looked_up(table: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return rows (M, …, D) of each model's own table (V, M, D), tokens (M, …)."""
    model = torch.arange(len(tokens), device=tokens.device).view(-1, *(1 for _ in tokens.shape[1:]))
    return table[tokens, model]


def _embedding(models: int, dims: Any, tokens: Any, weight: Any, padding: Any) -> tuple[torch.Tensor, int] | None:
    if dims[1] is None:
        return None
    table = weight.movedim(dims[1], 1)
    if dims[0] is not None:  # each model its own records: where models answer, not where they learn
        return _looked_up(table, tokens.movedim(dims[0], 0)), 0
    rows = table.flatten(1).index_select(0, tokens.reshape(-1)).view(*tokens.shape, models, -1)
    if padding is not None:  # its row is read and never learned
        rows = torch.where((tokens == padding % len(table))[..., None, None], rows.detach(), rows)
    return rows, tokens.dim()


def _bag(models: int, dims: Any, tokens: Any, weight: Any, *rest: Any) -> tuple[torch.Tensor, int] | None:
    mean, padding = rest
    if dims[1] is None:
        return None
    table = weight.movedim(dims[1], 1)
    if dims[0] is not None:
        tokens = tokens.movedim(dims[0], 0)
        counts = torch.ones_like(tokens) if padding is None else tokens != padding % len(table)
        held = counts[..., None].to(table.dtype)
        total = (_looked_up(table, tokens) * held).sum(2)
        return total / held.sum(2).clamp_min(1) if mean else total, 0
    used, place = torch.unique(tokens, return_inverse=True)
    count = table.new_zeros(len(tokens), len(used)).scatter_add_(1, place, torch.ones_like(place, dtype=table.dtype))
    if padding is not None:
        count[:, used == padding % len(table)] = 0
    if mean:
        count /= count.sum(1, keepdim=True).clamp_min(1)
    return (count @ table.flatten(1).index_select(0, used)).view(len(tokens), models, -1), 1


def _plain_bag(tokens: Any, weight: Any, mean: Any, padding: Any) -> Any:
    return functional.embedding_bag(tokens, weight, mode="mean" if mean else "sum", padding_idx=padding)


def _plain_embedding(tokens: Any, weight: Any, padding: Any) -> Any:
    return functional.embedding(tokens, weight, padding)


LINEAR = _rule(functional.linear, _linear)
CONV2D = _rule(functional.conv2d, _conv2d)
MAX_POOL2D = _rule(functional.max_pool2d, _pooled(functional.max_pool2d))
AVG_POOL2D = _rule(functional.avg_pool2d, _pooled(functional.avg_pool2d))
GROUP_NORM = _rule(functional.group_norm, _group_norm)
EMBEDDING = _rule(_plain_embedding, _embedding)
BAG = _rule(_plain_bag, _bag)


class Batching(TorchFunctionMode):
    """While this is entered, the layers above are taken through many models by the rules above."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Answer a call of torch."""
        named = dict(kwargs or {})
        take = _TAKEN.get(func)
        made = None if take is None else take(*args, **named)
        return func(*args, **named) if made is None else made[0](*made[1])


def _take_linear(x: Any, weight: Any, bias: Any = None) -> Any:
    return LINEAR, (x, weight, bias)


def _take_conv2d(x: Any, weight: Any, bias: Any = None, *rest: Any, **named: Any) -> Any:
    return CONV2D, (x, weight, bias, *_filled(rest, named, {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}))


def _take_max(x: Any, size: Any, *rest: Any, **named: Any) -> Any:
    if named.pop("return_indices", False):
        return None
    usual = {"stride": None, "padding": 0, "dilation": 1, "ceil_mode": False}
    return MAX_POOL2D, (x, size, *_filled(rest, named, usual))


def _take_avg(x: Any, size: Any, *rest: Any, **named: Any) -> Any:
    usual = {"stride": None, "padding": 0, "ceil_mode": False, "count_include_pad": True, "divisor_override": None}
    return AVG_POOL2D, (x, size, *_filled(rest, named, usual))


def _take_group_norm(x: Any, groups: int, *rest: Any, **named: Any) -> Any:
    return GROUP_NORM, (x, groups, *_filled(rest, named, {"weight": None, "bias": None, "eps": 1e-5}))


def _filled(rest: tuple[Any, ...], named: Mapping[str, Any], usual: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return values for the parameters ``usual``, given by place or name."""
    given = {**dict(zip(usual, rest, strict=False)), **named}
    return tuple(given.get(name, value) for name, value in usual.items())


def _take_embedding(tokens: Any, weight: Any, padding_idx: Any = None, *more: Any, **named: Any) -> Any:
    return None if _unusual(more, named) else (EMBEDDING, (tokens, weight, padding_idx))


def _take_bag(tokens: Any, weight: Any, offsets: Any = None, *more: Any, **named: Any) -> Any:
    # offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding
    names = ("max_norm", "norm_type", "scale_grad_by_freq", "mode", "sparse", "per_sample_weights",
             "include_last_offset", "padding_idx")  # fmt: skip
    said = {**dict(zip(names, more, strict=False)), **named}
    mode, padding = said.pop("mode", "mean"), said.pop("padding_idx", None)
    if offsets is not None or tokens.dim() != 2 or mode not in ("mean", "sum") or _unusual((), said):
        return None
    return BAG, (tokens, weight, mode == "mean", padding)


def _unusual(more: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    """Whether an option beyond the usual is set; the norm's exponent means nothing without the norm."""
    return any(bool(v) for v in more if v != 2.0) or any(bool(v) for k, v in named.items() if k != "norm_type")


_TAKEN: dict[Any, Callable[..., Any]] = {
    functional.linear: _take_linear,
    functional.conv2d: _take_conv2d,
    functional.max_pool2d: _take_max,
    torch.max_pool2d: _take_max,
    functional.avg_pool2d: _take_avg,
    functional.group_norm: _take_group_norm,
    functional.embedding: _take_embedding,
    functional.embedding_bag: _take_bag,
}
