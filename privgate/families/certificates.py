"""Certificates: theorems whose hypotheses were checked, one file each."""

from privgate.families.certificate import Certificate
from privgate.families.logistic.certificate import Newton
from privgate.families.logistic.linear_softmax import LinearSoftmax, Lipschitz, StrongConvexity
from privgate.families.naive_bayes.bernoulli_certificate import BernoulliNB
from privgate.families.naive_bayes.categorical_certificate import CategoricalNB
from privgate.families.naive_bayes.complement_certificate import ComplementNB
from privgate.families.naive_bayes.contingency_table import ContingencyTable
from privgate.families.naive_bayes.gaussian_certificate import GaussianNB
from privgate.families.naive_bayes.multinomial_certificate import MultinomialNB
from privgate.families.neighbours.smoothed_neighbors import SmoothedNeighbors
from privgate.families.trees.random_trees import RandomTrees

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
