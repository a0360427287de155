"""A declarative recipe for neural networks, so that many leave-one-out models can be trained in one batch.

Everything random is keyed by the record, never by its position: a record's batch in an epoch depends on its own
content, the seed and the epoch. Leaving a record out therefore changes nothing for the others but its absence (coupled
training); shuffling the remaining records anew would measure another batch order instead of the record.
"""

import itertools
import re
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privgate.models.classifier import Parameters
from privgate.models.record_keyed import batches, n_batches, record_keys

NO_GPU = "torch finds no GPU on this machine"


class TorchTraining(Parameters):
    """A multilayer perceptron, or any module, trained by mini-batches; a scikit-learn-like estimator.

    Parameters
    ----------
    hidden : sequence of int
        Units of each hidden layer of the built-in perceptron.
    activation : {"tanh", "relu"}
    dropout : float in [0, 1)
        Share of hidden units dropped in training; which ones depends on record, epoch and seed.
    module : callable, optional
        ``module(n_features, n_classes) -> torch.nn.Module`` returning logits, importable; replaces the perceptron. Its
        dropout layers are keyed by record; other random numbers come from torch's generator. Records reach it as rows
        of 32-bit floats: images are reshaped and tokens made whole numbers in its ``forward``.
    loss : callable, optional
        ``loss(logits, labels) -> (B,)``, importable, of each record; cross-entropy if absent.
    schedule : callable, optional
        ``schedule(epoch, epochs) -> factor`` of the learning rate in an epoch counted from 0, importable; 1 if absent.
    optimizer : {"sgd", "adam"}
    lr, momentum, weight_decay : float
        Learning rate; momentum of SGD; L2 penalty added to the gradient, as ``torch.optim`` does.
    batch_size : int
        Average number of records in a batch: an epoch assigns every record to one of ``ceil(n / batch_size)``.
    epochs : int
    random_state : int, optional
        Initial weights, batches and dropout; 0 if absent.
    device : str
        "cpu", "cuda", or "auto" for a GPU where there is one.

    Notes
    -----
    What is minimized is the mean loss of the batch; an empty batch is no step.
    """

    def __init__(
        self,
        *,
        hidden: Any = (64,),
        activation: str = "tanh",
        dropout: float = 0.0,
        module: Any = None,
        loss: Any = None,
        schedule: Any = None,
        optimizer: str = "sgd",
        lr: float = 0.01,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        batch_size: int = 32,
        epochs: int = 30,
        random_state: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.hidden = hidden
        self.activation = activation
        self.dropout = dropout
        self.module = module
        self.loss = loss
        self.schedule = schedule
        self.optimizer = optimizer
        self.lr = lr
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.epochs = epochs
        self.random_state = random_state
        self.device = device

    def __sklearn_clone__(self) -> Self:
        return type(self)(**self.get_params())

    def check(self) -> None:
        """Raise ``ValueError`` for parameters that mean nothing."""
        if self.activation not in ("tanh", "relu") or self.optimizer not in ("sgd", "adam"):
            raise ValueError("activation is 'tanh' or 'relu', optimizer is 'sgd' or 'adam'")
        if not (0 <= self.dropout < 1 and self.lr > 0 and self.momentum >= 0 and self.weight_decay >= 0):
            raise ValueError("dropout lies in [0, 1), lr above 0, momentum and weight_decay at 0 or above")
        if self.device not in ("cpu", "auto") and not re.fullmatch(r"cuda(:\d+)?", str(self.device)):
            raise ValueError(f"device is 'cpu', 'cuda', 'cuda:1' or 'auto', not {self.device!r}")
        if self.batch_size < 1 or self.epochs < 1 or any(h < 1 for h in self.hidden):
            raise ValueError("batch_size, epochs and hidden units must be at least 1")

    def fit(self, X: Any, y: Any) -> Self:
        """Train on records X (n, d) and labels y (n,) and return self."""
        import torch
        from torch.nn import functional

        from privgate.models.keyed_dropout import tell

        self.check()
        X = np.ascontiguousarray(X, dtype=np.float32)
        self.classes_, codes = np.unique(np.asarray(y), return_inverse=True)
        seed = self.random_state or 0
        device = resolve_device(self.device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            net = self.network(X.shape[1], len(self.classes_)).to(device)
            _, keys = record_keys(X, np.asarray(y))
            data, labels = torch.from_numpy(X).to(device), torch.from_numpy(codes).to(device)
            optimizer = self.make_optimizer(net.parameters())
            net.train()
            for epoch in range(self.epochs):
                optimizer.param_groups[0]["lr"] = self.rate(epoch)
                for rows in batches(keys, seed, epoch, n_batches(len(X), self.batch_size)):
                    if not len(rows):
                        continue
                    optimizer.zero_grad()
                    index = torch.from_numpy(rows).to(device)
                    tell(net, keys[rows], seed, epoch)
                    drop = {"keys": keys[rows], "seed": seed, "epoch": epoch} if self.module is None else {}
                    logits = net(data[index], **drop)
                    if self.loss is None:
                        loss = functional.cross_entropy(logits, labels[index])
                    else:
                        loss = self.loss(logits, labels[index]).mean()
                    torch.autograd.backward(loss)
                    optimizer.step()
        net.eval()
        self.module_ = net
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities (n, K), columns in the order of ``classes_``."""
        import torch

        with torch.no_grad():
            device = next(self.module_.parameters()).device
            logits = self.module_(torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32)).to(device))
            return np.asarray(torch.softmax(logits.double(), 1).cpu().numpy())

    def network(self, n_features: int, n_classes: int) -> Any:
        """Return an untrained module; weights come from torch's current seed."""
        if self.module is not None:
            from privgate.models import keyed_dropout

            return keyed_dropout.key(self.module(n_features, n_classes))
        return perceptron((n_features, *self.hidden, n_classes), self.activation, float(self.dropout))

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch."""
        return self.lr if self.schedule is None else float(self.lr * self.schedule(epoch, self.epochs))

    def make_optimizer(self, parameters: Any) -> Any:
        """Return the torch optimizer."""
        import torch

        if self.optimizer == "adam":
            return torch.optim.Adam(parameters, lr=self.lr, weight_decay=self.weight_decay)
        return torch.optim.SGD(parameters, lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay)


class PrivateTorchTraining(TorchTraining):
    """The same network trained by DP-SGD with Opacus: gradients clipped per record, noise added, batches drawn.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise over the clipping norm.
    max_grad_norm : float
        Clipping norm of one record's gradient.
    classes : sequence, optional
        Every label there can be, declared before the data are seen. Read off the data if absent.

    Others as of ``TorchTraining``; ``batch_size`` is what a batch holds on average: every record enters each of the
    ``ceil(n / batch_size)`` batches of an epoch by a draw of its own. ``random_state`` is not used: a seed that
    somebody knows takes the noise back out. Dropout is torch's own.

    Notes
    -----
    Sampling rate is 1 / ceil(n / batch_size), steps are epochs * ceil(n / batch_size).
    """

    def __init__(
        self,
        *,
        hidden: Any = (64,),
        activation: str = "tanh",
        dropout: float = 0.0,
        module: Any = None,
        loss: Any = None,
        schedule: Any = None,
        optimizer: str = "sgd",
        lr: float = 0.01,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        batch_size: int = 32,
        epochs: int = 30,
        random_state: int | None = None,
        device: str = "cpu",
        noise_multiplier: float = 1.0,
        max_grad_norm: float = 1.0,
        classes: Any = None,
    ) -> None:
        super().__init__(
            hidden=hidden, activation=activation, dropout=dropout, module=module, loss=loss, schedule=schedule,
            optimizer=optimizer, lr=lr, momentum=momentum, weight_decay=weight_decay, batch_size=batch_size,
            epochs=epochs, random_state=random_state, device=device,
        )  # fmt: skip
        self.noise_multiplier = noise_multiplier
        self.max_grad_norm = max_grad_norm
        self.classes = classes

    def fit(self, X: Any, y: Any) -> Self:
        """Train on records X (n, d) and labels y (n,) and return self."""
        import warnings

        import torch
        from opacus import PrivacyEngine
        from torch.utils.data import DataLoader, TensorDataset

        self.check()
        labels = np.asarray(y)
        self.classes_ = np.unique(labels if self.classes is None else np.asarray(self.classes))
        if not np.isin(labels, self.classes_).all():
            raise ValueError("a label is none of the declared classes")
        X = np.ascontiguousarray(X, dtype=np.float32)
        data = TensorDataset(torch.from_numpy(X), torch.from_numpy(np.searchsorted(self.classes_, labels)))
        net = self.network(X.shape[1], len(self.classes_))
        each = self.loss or torch.nn.CrossEntropyLoss(reduction="none")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Opacus warns of what it does by itself
            private, optimizer, loader = PrivacyEngine().make_private(
                module=net.train(),
                optimizer=self.make_optimizer(net.parameters()),
                data_loader=DataLoader(data, batch_size=min(self.batch_size, len(X))),
                noise_multiplier=self.noise_multiplier,
                max_grad_norm=self.max_grad_norm,
            )
            for epoch in range(self.epochs):
                optimizer.param_groups[0]["lr"] = self.rate(epoch)
                for features, codes in loader:
                    optimizer.zero_grad()
                    # the mean of the batch, which may be empty: noise is added all the same
                    torch.autograd.backward(each(private(features), codes).sum() / max(1, len(codes)))
                    optimizer.step()
        optimizer.zero_grad()  # a stored network would carry the last batch's gradients of single records
        net.eval()
        self.module_ = net
        return self

    def network(self, n_features: int, n_classes: int) -> Any:
        """Return an untrained module; weights come from torch's current state."""
        import torch

        if self.module is not None:
            return self.module(n_features, n_classes)
        sizes = (n_features, *self.hidden)
        between = torch.nn.Tanh if self.activation == "tanh" else torch.nn.ReLU
        layers: list[Any] = []
        for i, o in itertools.pairwise(sizes):
            layers += [torch.nn.Linear(i, o), between(), *([torch.nn.Dropout(self.dropout)] if self.dropout else [])]
        return torch.nn.Sequential(*layers, torch.nn.Linear(sizes[-1], n_classes))


def perceptron(sizes: tuple[int, ...], activation: str, dropout: float) -> Any:
    """Return a multilayer perceptron whose dropout is keyed by record."""
    from privgate.models import torch_perceptron

    return torch_perceptron.Perceptron(sizes, activation, dropout)


def resolve_device(name: str) -> str:
    """Return "cuda" for "auto" where there is a GPU, else "cpu"; other names unchanged.

    Raises
    ------
    ValueError
        A GPU is asked for and there is none.
    """
    import torch

    there = torch.cuda.is_available()
    if name == "auto":
        return "cuda" if there else "cpu"
    if name.startswith("cuda") and not there:
        # no quotation marks: what a worker says in them is left out of reports
        raise ValueError(f"the recipe asks for device {name}, but {NO_GPU}; set device to auto or cpu")
    return name
