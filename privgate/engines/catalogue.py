"""The engines in the order in which they are asked: closed form, certified Newton, tree, batched networks, refit."""

from privgate.engines import (
    bernoulli_nb,
    categorical_nb,
    complement_nb,
    decision_tree,
    gaussian_nb,
    k_nearest,
    lda,
    logistic,
    multinomial_nb,
    nearest_centroid,
    qda,
    refit,
    ridge,
    torch_nets,
)
from privgate.engines.base import Engine

ALL: tuple[Engine, ...] = (
    categorical_nb.ENGINE,
    bernoulli_nb.ENGINE,
    multinomial_nb.ENGINE,
    gaussian_nb.ENGINE,
    complement_nb.ENGINE,
    lda.ENGINE,
    qda.ENGINE,
    nearest_centroid.ENGINE,
    k_nearest.ENGINE,
    ridge.ENGINE,
    logistic.ENGINE,
    decision_tree.ENGINE,
    torch_nets.ENGINE,
    refit.ENGINE,
)
