"""An encoder made from public data as the first step of a pipeline: plain numbers, pinned, and nothing to learn.

A network or transformer that anybody wrote is code, and what it does on other records nobody can know. Here it is the
numbers that it consists of: affine maps and elementwise functions, written into the recipe with their digest. Training
learns the last step alone, so that the last step's engine and theorems speak about the whole pipeline.
"""

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from privgate.arrays import Float
from privgate.models.classifier import Settings

#: one layer: an elementwise function, or weights (d, h) and intercepts (h,)
Layer = str | tuple[Float, Float]

#: elementwise functions, all of them rising
FUNCTIONS: Mapping[str, Callable[[Float], Float]] = {
    "relu": lambda z: np.maximum(z, 0.0),
    "tanh": np.tanh,
    "sigmoid": lambda z: 0.5 * (1.0 + np.tanh(0.5 * z)),
}
#: torch's names of them
_ACTIVATIONS = {"ReLU": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid"}
#: torch's layers that are affine maps of one record's numbers once they are in evaluation mode
_AFFINE = frozenset((
    "Linear", "Conv1d", "Conv2d", "AvgPool1d", "AvgPool2d", "AdaptiveAvgPool2d", "BatchNorm1d", "BatchNorm2d",
    "Flatten", "Unflatten", "Identity", "Dropout", "Dropout1d", "Dropout2d",
))  # fmt: skip
#: layers that follow the batch in training mode
_OF_THE_BATCH = ("BatchNorm", "Dropout")
#: a recipe holds no more numbers; larger encoders make features before privgate is asked
MOST = 500_000
#: how well layers must repeat what they were read off, as a share of the largest answer
_ALIKE = 1e-5


class FrozenEncoder(Settings):
    """A first step that maps records by fixed layers; ``fit`` compares their digest, and learns nothing.

    Made by ``FrozenEncoder.of(module_or_transformer, features, public=…)``. That the encoder was made without these
    people's records is declared, and cannot be seen: whoever trained it on them has released it as it is.

    Parameters
    ----------
    layers : sequence of str
        Each the name of a function, or "affine d h" and base64 of weights and intercepts (little-endian float64).
    digest : str
        ``sha256:…`` of the layers; compared at every training and every question.
    public : str
        Where the encoder comes from; a sentence for whoever reads the report.

    Examples
    --------
    >>> from sklearn.preprocessing import StandardScaler
    >>> encoder = FrozenEncoder.of(StandardScaler().fit([[0.0], [2.0]]), 1, public="two numbers out of a book")
    >>> encoder.fit([[9.0]]).transform([[1.0], [2.0]]).tolist()
    [[0.0], [1.0]]
    """

    __module__ = "privgate.models"  # the name that recipes and stored models keep

    def __init__(self, layers: Any, digest: str = "", public: str = "") -> None:
        self.layers = layers
        self.digest = digest
        self.public = public

    @classmethod
    def of(cls, thing: Any, features: int, *, public: str, digest: str | None = None) -> Self:
        """Return the encoder that a torch module or a fitted transformer of scikit-learn is.

        Parameters
        ----------
        thing : torch.nn.Module or estimator
            A ``Sequential`` of affine layers and of ReLU, Tanh and Sigmoid, in evaluation mode; or a fitted transformer
            whose ``transform`` is an affine map (scalers, PCA, random projections), or a pipeline of such.
        features : int
            Numbers of a record.
        public : str
        digest : str, optional
            What the layers must have; computed if absent.

        Raises
        ------
        ValueError
            It cannot be written as such layers, is in training mode, or has another digest.
        """
        torch_module = hasattr(thing, "state_dict")
        layers = _of_module(thing, features) if torch_module else _of_transformer(thing, features)
        return cls.made(layers, public=public, digest=digest)

    @classmethod
    def made(cls, layers: Sequence[Layer], *, public: str, digest: str | None = None) -> Self:
        """Return the encoder of such layers; parameters and errors are those of ``of``."""
        numbers = sum(part.size for layer in layers if isinstance(layer, tuple) for part in layer)
        if numbers > MOST:
            raise ValueError(
                f"the encoder has {numbers} numbers and a recipe holds {MOST}; make features of the records before, X"
            )
        written = [_written(layer) for layer in layers]
        encoder = cls(written, digest_of(written) if digest is None else digest, public)
        if why := encoder.problem():
            raise ValueError(why)
        return encoder

    def problem(self) -> str:
        """Return why these layers may not be used; empty if they may."""
        try:
            if not str(self.public or "").strip():
                return "FrozenEncoder needs public=, a sentence on where the encoder comes from"
            if not self.digest:
                return "FrozenEncoder is not pinned: it needs digest='sha256:…' of its layers"
            if (own := digest_of(self.layers)) != self.digest:
                return f"the encoder's layers have digest {own}, not {self.digest}"
            width: int | None = None
            for layer in self._read():
                if isinstance(layer, tuple):
                    if width not in (None, len(layer[0])):
                        return f"an affine layer takes {len(layer[0])} numbers, the one before gives {width}"
                    width = layer[0].shape[1]
        except (ValueError, TypeError, AttributeError) as exc:
            return f"the encoder's layers cannot be read ({exc})"
        return "" if width is not None else "the encoder has no affine layer"

    def fit(self, X: Any, y: Any = None) -> Self:
        """Compare the digest and the number of features; nothing is learnt."""
        del y
        self.n_features_in_ = self._matrix(X).shape[1]
        self.transform(np.zeros((1, self.n_features_in_)))
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Float:
        """Return what ``fit`` and then ``transform`` do."""
        return self.fit(X, y).transform(X)

    def transform(self, X: Any) -> Float:
        """Return the encoded records, shape (n, h); the same bits for a record whoever else is asked about.

        Raises
        ------
        ValueError
            The layers are not those of the digest, or records hold something else than so many finite numbers.
        """
        if why := self.problem():
            raise ValueError(why)
        z = self._matrix(X)
        with np.errstate(over="ignore", invalid="ignore"):
            for layer in self._read():
                z = FUNCTIONS[layer](z) if isinstance(layer, str) else _affine(z, *layer)
        return z

    def read(self) -> list[Layer]:
        """Return the layers as arrays."""
        return list(self._read())

    def __sklearn_is_fitted__(self) -> bool:
        """Whether ``fit`` was called."""
        return hasattr(self, "n_features_in_")

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn from 1.6 asks of an estimator before it pipes it."""
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(),
            input_tags=InputTags(),
        )

    @staticmethod
    def _matrix(X: Any) -> Float:
        made = np.asarray(X, dtype=np.float64)
        if made.ndim != 2 or not np.isfinite(made).all():
            raise ValueError("FrozenEncoder needs a table of finite numbers")
        return made

    def _read(self) -> Iterator[Layer]:
        for layer in self.layers:
            yield layer if layer in FUNCTIONS else _parsed(layer)


def digest_of(layers: Sequence[str]) -> str:
    """Return the digest by which layers are pinned."""
    whole = hashlib.sha256()
    for layer in layers:
        whole.update(layer.encode() + b"\n")
    return f"sha256:{whole.hexdigest()}"


def _written(layer: Layer) -> str:
    if isinstance(layer, str):
        return layer
    weights, intercepts = layer
    body = np.concatenate([weights.ravel(), intercepts]).astype("<f8").tobytes()
    return f"affine {weights.shape[0]} {weights.shape[1]} {base64.b64encode(body).decode()}"


def _parsed(text: str) -> tuple[Float, Float]:
    kind, d, h, body = text.split(" ")
    if kind != "affine":
        raise ValueError(f"{kind[:20]!r} is neither 'affine' nor one of {', '.join(FUNCTIONS)}")
    numbers = np.frombuffer(base64.b64decode(body, validate=True), dtype="<f8").astype(np.float64)
    rows, columns = int(d), int(h)
    if rows < 1 or columns < 1 or len(numbers) != (rows + 1) * columns or not np.isfinite(numbers).all():
        raise ValueError(f"affine {d} {h} needs {d} x {h} finite weights and {h} intercepts")
    return numbers[: rows * columns].reshape(rows, columns), numbers[rows * columns :]


def _affine(z: Float, weights: Float, intercepts: Float) -> Float:
    """Return ``z weights + intercepts``, each record by itself: a product of matrices rounds by how many there are."""
    if z.shape[1] != len(weights):
        raise ValueError(f"records have {z.shape[1]} numbers, the encoder takes {len(weights)}")
    out = np.repeat(intercepts[None, :], len(z), axis=0)
    for j in range(len(weights)):
        out += z[:, j : j + 1] * weights[j]
    return out


def _of_module(module: Any, features: int) -> list[Layer]:
    """Return the layers of a torch module, each affine one read off its answers to zero and to unit vectors."""
    import torch

    if any(m.training and type(m).__name__.startswith(_OF_THE_BATCH) for m in module.modules()):
        raise ValueError("the module is in training mode: dropout and batch norm follow the batch; call .eval()")
    single = type(module).__name__ in (_AFFINE | set(_ACTIVATIONS))
    parts = [module] if single else list(module.children())
    if not single and type(module) is not torch.nn.Sequential:
        raise ValueError(f"{type(module).__name__} is no torch.nn.Sequential; what its forward does cannot be read")
    layers: list[Layer] = []
    probe, shape = torch.zeros((1, features), dtype=torch.float64), (features,)
    with torch.no_grad():
        for part in parts:
            name = type(part).__name__
            if name in _ACTIVATIONS:
                layers.append(_ACTIVATIONS[name])
                continue
            if name not in _AFFINE or type(part).__module__.split(".")[0] != "torch":
                raise ValueError(f"layer {name} is neither affine nor one of {', '.join(_ACTIVATIONS)}")
            exact = _doubled(part)
            width = int(np.prod(shape))
            zero = exact(torch.zeros((1, *shape), dtype=torch.float64))
            units = exact(torch.eye(width, dtype=torch.float64).reshape(width, *shape)) - zero
            shape = tuple(zero.shape[1:])
            layers.append((units.reshape(width, -1).numpy().copy(), zero.reshape(-1).numpy().copy()))
        probe = torch.from_numpy(_probes(features))
        theirs = _doubled(module)(probe).reshape(len(probe), -1).numpy()
    return _checked(layers, probe.numpy(), theirs)


def _doubled(part: Any) -> Callable[..., Any]:
    """Return a copy in double precision: the module stays as it is."""
    import copy

    made: Callable[..., Any] = copy.deepcopy(part).double()
    return made


def _of_transformer(thing: Any, features: int) -> list[Layer]:
    """Return a fitted transformer as one affine layer, if it is one."""
    if not hasattr(thing, "transform"):
        raise ValueError(f"{type(thing).__name__} is neither a torch module nor a fitted transformer")
    probe = _probes(features)

    def answer(X: Float) -> Float:
        return np.asarray(thing.transform(X), dtype=np.float64).reshape(len(X), -1)

    zero = answer(np.zeros((1, features)))
    weights = answer(np.eye(features)) - zero
    return _checked([(weights, zero[0])], probe, answer(probe))


def _probes(features: int) -> Float:
    """Return records of several sizes: what is clipped is an affine map near 0 only."""
    near = np.random.default_rng(0).normal(size=(8, features))
    return np.concatenate([near, 100 * near, 1e4 * near])


def _checked(layers: list[Layer], probe: Float, theirs: Float) -> list[Layer]:
    z: Float = probe
    for layer in layers:
        z = FUNCTIONS[layer](z) if isinstance(layer, str) else _affine(z, *layer)
    far = np.abs(z - theirs).max(axis=1) if z.shape == theirs.shape else np.full(1, np.inf)
    if not (far <= _ALIKE * np.maximum(1.0, np.abs(theirs).max(axis=1))).all():
        raise ValueError("it is no affine map, or its layers do not answer as it does; make the features before")
    return layers
