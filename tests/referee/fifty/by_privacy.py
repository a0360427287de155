"""Subjects that claim differential privacy: one honest training and six that keep their steps honest and still leak."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fifty import private_recipes as recipes
from fifty.catalogue import Trial, policy, variants
from privgate import Claim, Recipe, Subject, TrainingData
from privgate.run.run import Budget

N, DELTA = 200, 1e-5
STEPS = round(recipes.EPOCHS / recipes.RATE)
#: what the policy allows; the honest training is below, the broken ones above
LIMIT = 2.0


@cache
def epsilon(fold: int) -> float:
    """Return epsilon of Poisson-sampled Gaussian steps where a person has ``fold`` rows, each sampled by itself.

    One row is replaced by another. A person's sum of several has norm k C with k ~ Bin(fold, rate), a mixture of
    Gaussians a step, and zero if replaced by rows of gradient 0: no more than epsilon. Composed by dp-accounting's
    privacy loss distributions (not by the product's accountant).
    """
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution as pld
    from scipy.stats import binom

    if fold == 1:
        one = pld.from_gaussian_mechanism(
            recipes.NOISE, sampling_prob=recipes.RATE, neighboring_relation=NeighboringRelation.REPLACE_ONE
        )
        return float(one.self_compose(STEPS).get_epsilon_for_delta(DELTA))
    k = np.arange(fold + 1)
    step = pld.from_mixture_gaussian_mechanism(
        recipes.NOISE,
        k.astype(float).tolist(),
        binom.pmf(k, fold, recipes.RATE).tolist(),
        value_discretization_interval=1e-3,
    )
    return float(step.self_compose(STEPS).get_epsilon_for_delta(DELTA))


CLAIM = {
    "mechanism": "dp-sgd",
    "adjacency": "replace_one",
    "epsilon": 1.9,
    "delta": DELTA,
    "noise_multiplier": recipes.NOISE,
    "sample_rate": recipes.RATE,
    "steps": STEPS,
    "max_grad_norm": recipes.CLIP,
    "sampling": "poisson",
}


def people(n: int = N) -> tuple[Any, Any]:
    rng = np.random.default_rng(51)
    X = rng.uniform(-1, 1, (n, 3)) / np.sqrt(3)
    return X.astype(np.float32), (X[:, 0] + 0.3 * rng.normal(size=n) > 0).astype(int)


def private(folder: Path, *, how: str, shipped: bool = False) -> Trial:
    X, y = people(2 * N)
    data = TrainingData(X[:N], y[:N], candidates=(X[N:], y[N:]), one_record_each=True)
    recipe = Recipe(getattr(recipes, how), dp=Claim(**CLAIM))
    own = policy(folder, f"metric: dp_epsilon, max: {LIMIT}, delta: {DELTA:.8f}")
    if shipped:
        # the shipped policy allows 8: what is released exactly has no epsilon at all
        return Trial("dp-trained", lambda: Subject.local(recipe, data), lambda: np.inf, 8.0, Budget(shadow_models=32))
    true = {"honest": epsilon(1), "five_fold": epsilon(5), "mixup": epsilon(2)}.get(how, np.inf)
    return Trial(own, lambda: Subject.local(recipe, data), lambda: true, LIMIT)


NEEDS = ("torch", "opacus", "dp_accounting")
variants(
    private,
    "honest",
    approve=True,
    because="twenty Poisson steps with noise 2 at a rate of a tenth: epsilon by the privacy loss distribution",
    needs=NEEDS,
    honest={"how": "honest"},
)
variants(
    private,
    "more records than people",
    approve=False,
    because="a person's five rows are sampled one by one: the privacy loss distribution of the mixture of Gaussians",
    needs=NEEDS,
    five_fold={"how": "five_fold"},
    mixup={"how": "mixup"},
)
variants(
    private,
    "released beside the steps",
    approve=False,
    because="a number that is a function of the data without noise is released: two data sets that differ in one "
    "person give different numbers for certain, which no finite epsilon allows",
    needs=NEEDS,
    class_means={"how": "class_means"},
    label_counts={"how": "label_counts"},
    raw_scaler={"how": "raw_scaler"},
)
variants(
    private,
    "chosen on the training data",
    approve=False,
    because="which epoch is released is decided by the exact loss on the data: for some data set one person decides it "
    "alone, so that no finite epsilon holds for the choice",
    needs=NEEDS,
    best_epoch={"how": "best_epoch"},
)
