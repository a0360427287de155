"""The training function of a run that stops early, alone in its file as those of ``trained`` are."""

import numpy as np


def steep(X, y, *, seed):
    """Train by a function that no engine knows, so steeply that one outlier decides."""
    from sklearn.naive_bayes import GaussianNB

    del seed
    return GaussianNB(var_smoothing=1e-12).fit(np.array(X), y)
