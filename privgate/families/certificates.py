"""Certificates: theorems whose hypotheses were checked, each in the room of its family."""

from privgate.families.certificate import Certificate
from privgate.families.listed import ListedQuestions
from privgate.families.logistic.logistic_limits import BallLogisticCertificate, Newton
from privgate.families.naive_bayes import theorems
from privgate.families.sharded_members import ShardedMembers
from privgate.families.smoothed_neighbors import SmoothedNeighborsCertificate
from privgate.families.trees.tree_cells import TreeCells

ALL: dict[str, Certificate] = {
    c.name: c
    for c in (
        ListedQuestions(),
        *theorems.ALL,
        SmoothedNeighborsCertificate(),
        BallLogisticCertificate(),
        ShardedMembers(),
        TreeCells(),
        Newton(),
    )
}
