"""Long et al.'s own scheme: ten models for every single record and attack, five with the record and five without."""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from papers import networks
from papers.candidate_set import settings_of, subject_of
from papers.datasets import Data
from privgate.run import refit
from privgate.training.fleet import Fleet

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]

#: pairs of models an attack (section 5.3, M = 5)
PAIRS = 5
LEAST = 1e-30


def distance(q: Float, with_it: Float, without: Float) -> Float:
    """Return KL(q, mean without) - KL(q, mean with), nats: above 0 says "member" (section 5.3, step 2).

    Parameters
    ----------
    q : float64 array of shape (R, K)
        What the target models answer.
    with_it, without : float64 arrays of shape (R, M, K)
        What M models answer that were trained with the record, and without it.
    """
    a, b = np.maximum(with_it.mean(axis=1), LEAST), np.maximum(without.mean(axis=1), LEAST)
    return np.asarray((q * (np.log(a) - np.log(b))).sum(axis=1))


def without(record: int, size: int, count: int, rng: Generator) -> Bool:
    """Return ``count`` random subsets of size P / 2 - 1 of all records but one, shape (count, P)."""
    others = np.delete(np.arange(size), record)
    masks = np.zeros((count, size), dtype=bool)
    for mask in masks:
        mask[others[rng.permutation(size - 1)[: size // 2 - 1]]] = True
    return masks


def right(  # noqa: PLR0917  one argument a thing that the attack needs
    kind: str, data: Data, record: int, members: Bool, target_p: Float, fleet: Fleet, rng: Generator, *, sets: int
) -> Bool:
    """Return which target models are attacked rightly for one record, shape (R,).

    Parameters
    ----------
    kind : {"NB", "LR", "NN"}
    data : Data
    record : int
    members : bool array of shape (R,)
        Whether each target was trained on the record.
    target_p : float64 array of shape (R, K)
        The targets' probabilities for the record.
    fleet : Fleet
    rng : Generator
    sets : int
        Sets of ten models that are trained; target r is attacked with set r modulo ``sets``. As many as there are
        targets is the paper's scheme to the letter.
    """
    base = without(record, len(data.y), sets * PAIRS, rng)
    both = np.concatenate([base, base])
    both[len(base) :, record] = True
    p = np.exp(answers(kind, data, record, both, fleet, seed=1_000_003 * (record + 1)))
    out, inside = p[: len(base)].reshape(sets, PAIRS, -1), p[len(base) :].reshape(sets, PAIRS, -1)
    turn = np.arange(len(members)) % sets
    return np.asarray((distance(target_p, inside[turn], out[turn]) > 0) == members)


def answers(kind: str, data: Data, record: int, masks: Bool, fleet: Fleet, *, seed: int) -> Float:
    """Return log-probabilities of models on subsets for one record, shape (N, K)."""
    if kind == "NB":
        return counted(data, record, masks)
    if kind == "NN":
        asked, k = data.X[record : record + 1], data.n_classes
        return networks.train(
            data.X, data.y, masks, settings_of(data), n_classes=k, seed=seed, queries=asked, fleet=fleet
        )[:, 0]
    rows = np.arange(len(data.y))
    subject = subject_of(kind, data, rows[: len(rows) // 2], rows[len(rows) // 2 :])
    return refit.train_on_subsets(subject, masks, (None,) * len(masks), fleet).log_p[:, record]


def counted(data: Data, record: int, masks: Bool) -> Float:
    """Return what ``BernoulliNB`` or ``CategoricalNB`` answer for one record, by counting who shares its values.

    ``p(v | c) = (n_cv + 1) / (n_c + V)``, V the number of values of a feature: one matrix product a class for all
    models, since only the record's own values are asked for.
    """
    like = (data.codes == data.codes[record]).astype(np.float32)
    values = np.full(like.shape[1], 2) if data.binary else data.codes.max(axis=0) + 1
    joint = np.empty((len(masks), data.n_classes))
    for c in range(data.n_classes):
        at = data.y == c
        held = masks[:, at].sum(axis=1)
        # counts are whole numbers below 2^24: exact in single precision
        share = (masks[:, at].astype(np.float32) @ like[at]).astype(np.float64) + 1
        with np.errstate(divide="ignore"):
            joint[:, c] = np.log(share).sum(axis=1) - np.log(held[:, None] + values).sum(axis=1) + np.log(held)
    joint -= joint.max(axis=1, keepdims=True)
    return np.asarray(joint - np.log(np.exp(joint).sum(axis=1, keepdims=True)))
