"""The engines in the order in which they are asked: closed form, certified Newton, tree, batched networks, refit."""

from privgate.engines import bernoulli_nb, categorical_nb, complement_nb, gaussian_nb, logistic, multinomial_nb, refit
from privgate.engines.base import Engine

ALL: tuple[Engine, ...] = (
    categorical_nb.ENGINE,
    bernoulli_nb.ENGINE,
    multinomial_nb.ENGINE,
    gaussian_nb.ENGINE,
    complement_nb.ENGINE,
    logistic.ENGINE,
    refit.ENGINE,
)
