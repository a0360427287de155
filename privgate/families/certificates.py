"""Certificates: theorems whose hypotheses were checked, each in the room of its family."""

from privgate.families.certificate import Certificate
from privgate.families.listed import ListedQuestions
from privgate.families.logistic.logistic_limits import BallLogisticCertificate, Newton
from privgate.families.naive_bayes import bernoulli, categorical, gaussian, theorems
from privgate.families.nearest import SmoothedNeighborsCertificate
from privgate.families.sharded import ShardedMembers
from privgate.families.trees.tree_cells import TreeCells

ALL: dict[str, Certificate] = {
    c.name: c
    for c in (
        ListedQuestions(),
        categorical.CERTIFICATE,
        bernoulli.CERTIFICATE,
        *theorems.WORDS,
        gaussian.CERTIFICATE,
        *theorems.SHARES,
        SmoothedNeighborsCertificate(),
        BallLogisticCertificate(),
        ShardedMembers(),
        TreeCells(),
        Newton(),
    )
}
