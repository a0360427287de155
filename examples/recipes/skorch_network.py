"""A torch network as a skorch estimator, behind a scaler: a recipe without any function."""

import numpy as np
import torch
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from skorch import NeuralNetClassifier

from privgate import Recipe


class Network(torch.nn.Module):
    """One hidden layer, as wide as its first input says."""

    def __init__(self, width=8, classes=2):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.LazyLinear(width), torch.nn.ReLU(), torch.nn.Linear(width, classes))

    def forward(self, X):
        """Return probabilities, which skorch's default loss expects."""
        return torch.softmax(self.layers(X), dim=1)


def short(X):
    """Return numbers of the width that torch computes in."""
    return np.asarray(X, dtype=np.float32)


NET = NeuralNetClassifier(Network, max_epochs=15, lr=0.1, train_split=None, iterator_train__shuffle=True, verbose=0)
RECIPE = Recipe(make_pipeline(StandardScaler(), FunctionTransformer(short), NET), seed=7)
