"""What an attack's scores achieve on known members and non-members: exact on the sample, no intervals here."""

from dataclasses import dataclass

import numpy as np

from privgate.arrays import Bool, Float
from privgate.errors import MeasurementError

#: shadow models at each look of a rule that names its level -> share of it that blocking spends there
LOOKS = {4: 1 / 8, 8: 1 / 8, 16: 1 / 8, 32: 1 / 8, 64: 1 / 2}
#: looks that may approve, each at the same share of the level
APPROVING = (32, 64)


def checked(scores: Float, members: Bool) -> tuple[Float, Bool]:
    """Return both as arrays; ``MeasurementError``: a score is NaN, or one of the two kinds of records is missing."""
    s, m = np.asarray(scores, dtype=np.float64), np.asarray(members, dtype=bool)
    if np.isnan(s).any():
        raise MeasurementError(f"{int(np.isnan(s).sum())} attack scores are NaN: the attack failed")
    if m.all() or not m.any():
        raise MeasurementError("an attack needs members and candidates; only one kind is there")
    return s, m


@dataclass(frozen=True, slots=True)
class Decisions:
    """Counts of an attack that says "member" or "non-member"."""

    #: members called member, and called non-member
    tp: int
    fn: int
    #: non-members called member, and called non-member
    fp: int
    tn: int

    @classmethod
    def from_flags(cls, fired: Bool, members: Bool) -> "Decisions":
        """Count decisions: ``fired`` is true where the attack says "member"."""
        f, m = np.asarray(fired, dtype=bool), np.asarray(members, dtype=bool)
        return cls(int((f & m).sum()), int((~f & m).sum()), int((f & ~m).sum()), int((~f & ~m).sum()))

    @property
    def recall(self) -> float:
        """True-positive rate; NaN without members."""
        return self.tp / (self.tp + self.fn) if self.tp + self.fn else float("nan")

    @property
    def false_positive_rate(self) -> float:
        """Share of non-members called member; NaN without non-members."""
        return self.fp / (self.fp + self.tn) if self.fp + self.tn else float("nan")

    @property
    def advantage(self) -> float:
        """TPR - FPR, in [-1, 1]; Yeom et al. (2020), Definition 4."""
        return self.recall - self.false_positive_rate

    @property
    def balanced_accuracy(self) -> float:
        """(TPR + TNR) / 2: accuracy at a prior of one half, whatever the sizes of the two sides."""
        return (1 + self.advantage) / 2


def auc(scores: Float, members: Bool) -> float:
    """Return the area under the ROC curve: P(member's score > non-member's) + P(equal) / 2, of one of each at least.

    Higher scores mean "more likely a member"; 0.5 is blind, larger is worse for privacy. Exact on the sample.

    >>> auc(np.array([0.9, 0.8, 0.2, 0.2]), np.array([True, False, True, False]))
    0.625
    """
    s, m = checked(scores, members)
    n1, (_, place, ties) = int(m.sum()), np.unique(s, return_inverse=True, return_counts=True)
    n0, ranks = len(m) - n1, np.cumsum(ties) - (ties - 1) / 2
    return float((ranks[place][m].sum() - n1 * (n1 + 1) / 2) / (n1 * n0))


def roc(scores: Float, members: Bool) -> tuple[Float, Float, Float]:
    """Return the corners of the ROC curve as (fpr, tpr, threshold), firing at ``score >= threshold``.

    Records of equal score are flagged together or not at all; the first corner is (0, 0) at infinity.
    """
    s, m = checked(scores, members)
    order = np.argsort(-s, kind="stable")
    s, m = s[order], m[order]
    last = np.r_[np.flatnonzero(np.diff(s)), len(s) - 1]
    tp, fp = np.cumsum(m)[last], np.cumsum(~m)[last]
    return (np.r_[0.0, fp / (~m).sum()], np.r_[0.0, tp / m.sum()], np.r_[np.inf, s[last]])


def tpr_at_fpr(scores: Float, members: Bool, *, fpr: float) -> float:
    """Return the best true-positive rate with at most a share of ``fpr`` false positives on this sample.

    Higher scores mean "more likely a member", one of each kind at least; larger is worse. Carlini et al. (2022), III.

    >>> s = np.array([0.9, 0.8, 0.2, 0.1])
    >>> tpr_at_fpr(s, np.array([True, False, True, False]), fpr=0.0)
    0.5
    """
    false, true, _ = roc(scores, members)
    return float(true[false <= fpr].max())


def best_threshold(scores: Float, members: Bool) -> float:
    """Return the threshold with the largest TPR - FPR, firing at ``score >= threshold``.

    Chosen on these records, so its advantage *on these records* is flattered: evaluate it on others.
    """
    false, true, threshold = roc(scores, members)
    return float(threshold[np.argmax(true - false)])


def least_nonmembers(fpr: float, *, alpha: float) -> int:
    """Return how many non-members an upper limit at this false-positive rate needs at least: ln a / ln(1 - f).

    ``alpha`` is the share of the error that the threshold may spend (half of the limit's).

    >>> least_nonmembers(0.01, alpha=0.025), least_nonmembers(0.001, alpha=0.025)
    (368, 3688)
    """
    return int(np.ceil(np.log(alpha) / np.log1p(-fpr)))
