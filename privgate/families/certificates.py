"""Certificates: theorems whose hypotheses were checked, each in the room of its family."""

from privgate.families.certificate import Certificate
from privgate.families.listed import ListedQuestions
from privgate.families.logistic.logistic_limits import BallLogisticCertificate, Newton
from privgate.families.naive_bayes.bernoulli import BernoulliCertificate
from privgate.families.naive_bayes.categorical import CategoricalCertificate
from privgate.families.naive_bayes.complement import ComplementCertificate
from privgate.families.naive_bayes.contingency_table import ContingencyTableCertificate
from privgate.families.naive_bayes.gaussian_certificate import GaussianNB
from privgate.families.naive_bayes.multinomial import MultinomialCertificate
from privgate.families.nearest import SmoothedNeighborsCertificate
from privgate.families.sharded import ShardedMembers
from privgate.families.trees.random_trees import RandomTreesCertificate
from privgate.families.trees.tree_cells import TreeCells

ALL: dict[str, Certificate] = {
    c.name: c
    for c in (
        ListedQuestions(),
        CategoricalCertificate(),
        BernoulliCertificate(),
        MultinomialCertificate(),
        ComplementCertificate(),
        GaussianNB(),
        ContingencyTableCertificate(),
        SmoothedNeighborsCertificate(),
        RandomTreesCertificate(),
        BallLogisticCertificate(),
        ShardedMembers(),
        TreeCells(),
        Newton(),
    )
}
