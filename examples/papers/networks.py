"""Many small networks in one batch of matrix products: one hidden layer, trained on subsets of one pool."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from papers.memory import recalled
from privgate.errors import UsageError
from privgate.training.fleet import Fleet

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]


def torch() -> Any:
    """Return torch.

    Raises
    ------
    UsageError
        It is not installed.
    """
    try:
        import torch as found
    except ImportError as exc:
        raise UsageError("networks of the papers need torch: pip install 'privgate[torch]'") from exc
    return found


@dataclass(frozen=True, slots=True)
class Settings:
    """A network with one hidden layer of tanh units, trained by Adam on cross-entropy.

    Parameters
    ----------
    hidden, epochs : int
        Units, and passes over the records.
    batch : int
        Records of the *pool* in a step: networks train on those among them that they hold, so that one order of records
        serves all networks, and a record that is left out changes nobody else's batch.
    rate : float
        Learning rate.
    """

    hidden: int = 64
    epochs: int = 60
    batch: int = 200
    rate: float = 0.003


def train(
    X: Float,
    y: NDArray[np.int64],
    masks: Bool,
    settings: Settings,
    *,
    n_classes: int,
    seed: int,
    same_start: bool = False,
    queries: Float | None = None,
    at_once: int = 64,
    fleet: Fleet | None = None,
) -> Float:
    """Return log-probabilities of one network a row of ``masks``, trained on the records where it is true.

    Parameters
    ----------
    X : float64 array of shape (P, d)
    y : int64 array of shape (P,)
    masks : bool array of shape (N, P)
    settings : Settings
    n_classes : int
    seed : int
        Of initial weights and of the order of records.
    same_start : bool
        Whether all networks start at the same weights, as for leaving records out; else each at its own.
    queries : float64 array of shape (Q, d), optional
        Where to evaluate; the pool if absent.
    at_once : int
        Networks in one batch.
    fleet : Fleet, optional
        Its ledger remembers every batch of networks.

    Returns
    -------
    float64 array of shape (N, Q, K)
        Natural log-probabilities.
    """
    asked = X if queries is None else queries
    out = np.empty((len(masks), len(asked), n_classes))
    for i in range(0, len(masks), at_once):
        part, own = masks[i : i + at_once], seed if same_start else seed + i

        def made(part: Bool = part, own: int = own) -> Float:
            random = torch().Generator().manual_seed(own)
            start = _start(random, count=len(part), d=X.shape[1], hidden=settings.hidden, n_classes=n_classes,
                           different=1 if same_start else len(part))  # fmt: skip
            weights = _descend(X, y, part, settings, weights=start, random=random)
            blocks = [_answers(weights, asked[j : j + 1000], len(part)) for j in range(0, len(asked), 1000)]
            return np.concatenate(blocks, axis=1)

        out[i : i + at_once] = recalled(fleet, (X, y, part, asdict(settings), n_classes, own, same_start, asked), made)
    return out


def _start(random: Any, *, count: int, d: int, hidden: int, n_classes: int, different: int) -> list[Any]:
    """Return initial weights; the first layer as one matrix (d, count * hidden), since all networks share the input."""
    t = torch()

    def uniform(*shape: int, fan: int) -> Any:
        drawn = (t.rand(different, *shape, generator=random) * 2 - 1) / fan**0.5
        return drawn.expand(count, *shape).clone()

    w1 = uniform(d, hidden, fan=d).permute(1, 0, 2).reshape(d, count * hidden).contiguous()
    b1 = uniform(hidden, fan=d).reshape(count * hidden)
    return [w1, b1, uniform(hidden, n_classes, fan=hidden), uniform(1, n_classes, fan=hidden)]


def _descend(
    X: Float, y: NDArray[np.int64], masks: Bool, settings: Settings, *, weights: list[Any], random: Any
) -> list[Any]:
    """Return trained weights: gradients by hand, because the input's product is shared by all networks."""
    t = torch()
    (w1, b1, w2, b2), count, hidden = weights, len(masks), settings.hidden
    first, second = [t.zeros_like(w) for w in weights], [t.zeros_like(w) for w in weights]
    data, held = t.tensor(X, dtype=t.float32), t.tensor(masks, dtype=t.float32)
    hot = t.nn.functional.one_hot(t.tensor(y), w2.shape[2]).float()
    step = 0
    for _ in range(settings.epochs):
        for rows in t.randperm(len(X), generator=random).split(settings.batch):
            step += 1
            x, w = data[rows], held[:, rows]
            h = t.tanh(t.addmm(b1, x, w1)).view(len(rows), count, hidden).transpose(0, 1)
            share = w / w.sum(dim=1, keepdim=True).clamp_min(1.0)
            error = (t.softmax(t.baddbmm(b2, h, w2), dim=2) - hot[rows]) * share[:, :, None]
            back = t.bmm(error, w2.transpose(1, 2)) * (1 - h * h)
            back = back.transpose(0, 1).reshape(len(rows), count * hidden)
            slopes = [x.T @ back, back.sum(dim=0), t.bmm(h.transpose(1, 2), error), error.sum(dim=1, keepdim=True)]
            scale = settings.rate * (1 - 0.999**step) ** 0.5 / (1 - 0.9**step)
            for v, g, m, s in zip(weights, slopes, first, second, strict=True):
                m.mul_(0.9).add_(g, alpha=0.1)
                s.mul_(0.999).addcmul_(g, g, value=0.001)
                v.addcdiv_(m, s.sqrt().add_(1e-8), value=-scale)
    return weights


def _answers(weights: list[Any], queries: Float, count: int) -> Float:
    t = torch()
    w1, b1, w2, b2 = weights
    h = t.tanh(t.addmm(b1, t.tensor(queries, dtype=t.float32), w1))
    scores = t.baddbmm(b2, h.view(len(queries), count, -1).transpose(0, 1), w2).double()
    return np.asarray(t.log_softmax(scores, dim=2).numpy(), dtype=np.float64)


def fitted(
    X: Float, y: NDArray[np.int64], members: Bool, settings: Settings, *, n_classes: int, seed: int
) -> Callable[[Float], Float]:
    """Return one trained network as a function from records (n, d) to probabilities (n, K)."""
    random = torch().Generator().manual_seed(seed)
    start = _start(random, count=1, d=X.shape[1], hidden=settings.hidden, n_classes=n_classes, different=1)
    weights = _descend(X, y, members[None], settings, weights=start, random=random)
    return lambda queries: np.exp(_answers(weights, queries, 1)[0])
