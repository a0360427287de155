"""Certificates: theorems whose hypotheses were checked, one file each."""

from privgate.certificates.base import Certificate, Certified
from privgate.certificates.bernoulli_nb import BernoulliNB
from privgate.certificates.best import applicable, bound, reasons
from privgate.certificates.categorical_nb import CategoricalNB
from privgate.certificates.complement_nb import ComplementNB
from privgate.certificates.contingency_table import ContingencyTable
from privgate.certificates.gaussian_nb import GaussianNB
from privgate.certificates.linear_softmax import LinearSoftmax
from privgate.certificates.lipschitz import Lipschitz
from privgate.certificates.multinomial_nb import MultinomialNB
from privgate.certificates.newton import Newton
from privgate.certificates.random_trees import RandomTrees
from privgate.certificates.smoothed_neighbors import SmoothedNeighbors
from privgate.certificates.strong_convexity import StrongConvexity

ALL: dict[str, Certificate] = {
    c.name: c
    for c in (
        CategoricalNB(),
        BernoulliNB(),
        MultinomialNB(),
        ComplementNB(),
        GaussianNB(),
        ContingencyTable(),
        SmoothedNeighbors(),
        RandomTrees(),
        LinearSoftmax(),
        Newton(),
        StrongConvexity(),
        Lipschitz(),
    )
}

__all__ = ["ALL", "Certificate", "Certified", "applicable", "bound", "reasons"]
