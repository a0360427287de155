"""What ε says about every membership adversary, the earlier bounds beside it, and the largest ε for a goal."""

import math

from privgate.errors import UsageError

# What a pure ε-DP guarantee says about every membership adversary, and the earlier bounds beside it.
#
# Setting, for all of them: records enter the training set independently, the record in question with prior probability
# p in the adversary's eyes; training is ε-DP for add/remove adjacency; the adversary is any function of the released
# model with any knowledge of the other records. Fixed-size sampling needs the replace-one ε instead
# (``effective_guarantee``). Accuracies are fractions, larger is worse for privacy.
#
# ``p`` is the prior given everything the adversary knows about this record alone. Knowledge that ties the record to
# others ("both or neither") is not covered by any of these: k tied records need k·ε.
#
# Source: Thudi et al. (2022), "Bounding Membership Inference"; Yeom et al. (2020); Erlingsson et al.
# (2019); Sablayrolles et al. (2019).


def checked_epsilon(epsilon: float) -> float:
    """Return ``epsilon`` in nats if it is finite and not negative, else raise ``UsageError``."""
    if not math.isfinite(epsilon) or epsilon < 0:
        raise UsageError(f"epsilon must be a finite number of nats, at least 0, not {epsilon}")
    return float(epsilon)


def checked_prior(prior: float) -> float:
    """Return ``prior`` if it lies strictly between 0 and 1, else raise ``UsageError``."""
    if not 0 < prior < 1:
        raise UsageError(f"the prior probability of membership must lie strictly between 0 and 1, not {prior}")
    return float(prior)


def checked_delta(delta: float) -> float:
    """Return ``delta`` if it lies in [0, 1), else raise ``UsageError``."""
    if not 0 <= delta < 1:
        raise UsageError(f"delta must lie in [0, 1), not {delta}")
    return float(delta)


def checked_fpr(fpr: float) -> float:
    """Return ``fpr`` if it lies in (0, 1], else raise ``UsageError``."""
    if not 0 < fpr <= 1:
        raise UsageError(f"a false-positive rate must lie in (0, 1], not {fpr}")
    return float(fpr)


def logit(p: float) -> float:
    """Return ln(p / (1 - p)), nats; infinite at 0 and 1."""
    if p <= 0:
        return -math.inf
    return math.inf if p >= 1 else math.log(p) - math.log1p(-p)


def sigmoid(x: float) -> float:
    """Return 1 / (1 + e^-x) without overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def positive_accuracy(epsilon: float, prior: float) -> tuple[float, float]:
    """Return the least and the largest possible Pr[member | the adversary says member].

    Parameters
    ----------
    epsilon : float
        Pure ε-DP, nats.
    prior : float in (0, 1)
        Probability of membership before the model was seen.

    Returns
    -------
    (low, high) : floats in (0, 1)
        ``logit(p) ± ε`` as probabilities. Attained by randomised response, so nothing smaller holds.

    References
    ----------
    Thudi et al. (2022), Theorem 1.

    Examples
    --------
    >>> [round(positive_accuracy(e, 0.5)[1], 4) for e in (1, 2)]
    [0.7311, 0.8808]
    """
    center = logit(checked_prior(prior))
    return sigmoid(center - checked_epsilon(epsilon)), sigmoid(center + epsilon)


def negative_accuracy(epsilon: float, prior: float) -> tuple[float, float]:
    """Return the least and the largest possible Pr[not a member | the adversary says so]; Thudi, Corollary 1."""
    return positive_accuracy(epsilon, 1 - checked_prior(prior))


def advantage(epsilon: float) -> float:
    """Return the largest TPR - FPR, tanh(ε/2); needs no prior, attained by randomised response."""
    return math.tanh(checked_epsilon(epsilon) / 2)


def accuracy(epsilon: float, prior: float) -> float:
    """Return the largest share of right guesses, max(σ(ε), p, 1-p).

    At p = ½ it equals the bound on positive accuracy; elsewhere "accuracy = max(positive, negative)" is wrong.
    """
    return max(sigmoid(checked_epsilon(epsilon)), checked_prior(prior), 1 - prior)


def erlingsson_accuracy(epsilon: float, delta: float = 0.0) -> float:
    """Return Erlingsson et al.'s bound on accuracy at p = ½, 1 - e^-ε (1-δ) / 2."""
    return 1 - math.exp(-checked_epsilon(epsilon)) * (1 - checked_delta(delta)) / 2


def sablayrolles_positive_accuracy(epsilon: float, prior: float) -> float:
    """Return Sablayrolles et al.'s bound p + ε/4, at most 1; theirs assumes a form of the weight distribution.

    It holds without that assumption, because σ' ≤ ¼ makes it weaker than Theorem 1.
    """
    return min(1.0, checked_prior(prior) + checked_epsilon(epsilon) / 4)


def yeom_advantage(epsilon: float) -> float:
    """Return Yeom et al.'s bound on TPR - FPR, e^ε - 1, at most 1; says nothing from ε = ln 2 on."""
    return min(1.0, math.expm1(min(checked_epsilon(epsilon), 1.0)))


def yeom_accuracy(epsilon: float) -> float:
    """Return Yeom et al.'s bound on accuracy at p = ½, e^ε / 2, at most 1."""
    return (1 + yeom_advantage(epsilon)) / 2


def generalization_gap(epsilon: float, loss_bound: float) -> float:
    """Return the largest |generalization gap| of an ε-DP learner whose loss lies in [0, B]: B tanh(ε/2).

    Parameters
    ----------
    epsilon : float
        Add/remove ε for the gap between in-sample and out-of-sample records of the pool; replace-one ε for fresh draws.
    loss_bound : float
        B > 0, in units of the loss. A loss without a bound (cross-entropy) has no such statement.

    References
    ----------
    Thudi et al. (2022), Corollary 3; Yeom et al. (2020), Theorem 2.
    """
    if not (math.isfinite(loss_bound) and loss_bound > 0):
        raise UsageError(f"the loss must be bounded by a positive number, not {loss_bound}")
    return loss_bound * advantage(epsilon)


def pool_epsilon(epsilon: float, keep: float) -> float:
    """Return ε of membership in the *pool* when each record of it is kept for training with probability ``keep``.

    ``ln(1 + s(e^ε - 1))``; exact for randomised response. Membership in the *training set* keeps ε: there only the
    prior shrinks (``training_prior``). Either holds only while the selection stays secret. δ becomes s·δ.

    References
    ----------
    Thudi et al. (2022), section 4.2.
    """
    return math.log1p(_checked_keep(keep) * math.expm1(checked_epsilon(epsilon)))


def training_prior(prior: float, keep: float) -> float:
    """Return the prior of membership in the training set, given that of membership in the pool: p·s."""
    return checked_prior(prior) * _checked_keep(keep)


def _checked_keep(keep: float) -> float:
    if not 0 < keep <= 1:
        raise UsageError(f"the share of the pool that is kept must lie in (0, 1], not {keep}")
    return keep


def effective_guarantee(epsilon: float, delta: float, *, adjacency: str, inclusion: str) -> tuple[float, float]:
    """Return (ε, δ) as they enter the bounds, given how records came into the training set.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee.
    adjacency : {"add_remove", "replace_one"}
        What it is about.
    inclusion : {"independent", "fixed_size"}
        Each record independently, size not published; or a random set of a size that the adversary knows.

    Returns
    -------
    (epsilon, delta)
        Add/remove ε under fixed-size inclusion doubles: swapping one record is one removal and one addition.

    Raises
    ------
    UsageError
        Replace-one under independent inclusion: it says nothing about a record's presence or absence.
    """
    checked_epsilon(epsilon), checked_delta(delta)
    if adjacency not in ("add_remove", "replace_one") or inclusion not in ("independent", "fixed_size"):
        raise UsageError(
            f"adjacency {adjacency!r} with inclusion {inclusion!r} is unknown: adjacency is 'add_remove' or "
            "'replace_one', inclusion 'independent' or 'fixed_size'"
        )
    if (adjacency, inclusion) == ("replace_one", "independent"):
        raise UsageError(
            "a replace-one guarantee bounds nothing when records enter independently: it never compares a data set "
            "with the same one minus a record; use inclusion 'fixed_size' or an add/remove guarantee"
        )
    if adjacency == "add_remove" and inclusion == "fixed_size":
        return 2 * epsilon, min(delta * (1 + math.exp(epsilon)), 1.0) if delta else 0.0
    return epsilon, delta


# From a goal to the largest ε that achieves it.


def epsilon_for_accuracy(largest: float, prior: float = 0.5, *, delta: float = 0.0) -> float:
    """Return the largest ε at which no adversary is right more often than ``largest``, (ε, δ)-DP.

    ``(e^ε + δ)/(1 + e^ε) ≤ a``, and the base rates max(1-p+pδ, p+(1-p)δ) must not exceed a already.
    """
    p = checked_prior(prior)
    base = max(1 - p + p * checked_delta(delta), p + (1 - p) * delta)
    if not base <= largest < 1:
        raise UsageError(
            f"accuracy {largest:g} cannot be promised at prior {p:g}: guessing without a model already reaches {base:g}"
        )
    return largest_epsilon((largest - delta) / (1 - largest), f"accuracy {largest:g}")


def epsilon_for_positive_accuracy(
    largest: float, prior: float, *, delta: float = 0.0, fpr: float | None = None
) -> float:
    """Return the largest ε at which Pr[member | fires] ≤ ``largest``; with δ > 0 only for tests of FPR ≥ ``fpr``."""
    p = checked_prior(prior)
    if not p < largest < 1:
        raise UsageError(f"a positive accuracy of {largest:g} must lie between the prior {p:g} and 1")
    if fpr is None:
        if checked_delta(delta):
            raise UsageError(
                "with delta above 0, positive accuracy is unbounded without a false-positive rate; pass one"
            )
        return logit(largest) - logit(p)
    f = checked_fpr(fpr)
    allowed = f * (1 - p) * largest / (p * (1 - largest))
    if allowed >= 1:
        raise UsageError(f"at FPR {f:g} and prior {p:g} no test exceeds {largest:g}, whatever epsilon is")
    growth = max((allowed - delta) / f, (1 - delta - f) / (1 - allowed))
    return largest_epsilon(growth, f"positive accuracy {largest:g} at FPR {f:g}")


def largest_epsilon(growth: float, goal: str) -> float:
    """Return ln(growth), nats; a growth of the odds below 1 is promised by no ε."""
    if growth < 1:
        raise UsageError(f"{goal} cannot be promised by any epsilon, not even 0; use a smaller share of the pool")
    return math.log(growth)
