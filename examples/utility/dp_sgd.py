"""Logistic regression by Opacus' DP-SGD as a plain estimator; noise for the wanted ε at δ = 1e-5."""

import warnings
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

DELTA, RATE, STEPS, CLIP, SPEED = 1e-5, 0.05, 200, 1.0, 2.0


@lru_cache
def noise(epsilon: float) -> float:
    """Return the noise multiplier that gives ε for these steps and this sampling, by Opacus' accountant."""
    from opacus.accountants.utils import get_noise_multiplier

    goal = {"target_epsilon": epsilon, "target_delta": DELTA, "sample_rate": RATE, "steps": STEPS}
    return float(get_noise_multiplier(**goal, accountant="rdp"))


class DpSgd(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # the library's classes have no types
    """A linear softmax model trained with differential privacy; its randomness is seeded for this table alone.

    A model that is released must draw its noise from what nobody can repeat.
    """

    def __init__(self, epsilon: float = 1.0, classes: Any = None, random_state: int = 0) -> None:
        self.epsilon = epsilon
        self.classes = classes
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train; the number of people is taken for public, as the sampling rate is."""
        import torch
        from opacus import PrivacyEngine
        from torch.utils.data import DataLoader, TensorDataset

        self.classes_ = np.asarray(self.classes)
        features = self._features(X)
        codes = torch.as_tensor(np.searchsorted(self.classes_, np.asarray(y)))
        draws = torch.Generator().manual_seed(int(self.random_state))
        net = torch.nn.Linear(features.shape[1], len(self.classes_))
        torch.nn.init.zeros_(net.weight)
        torch.nn.init.zeros_(net.bias)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            private, optimizer, loader = PrivacyEngine().make_private(
                module=net,
                optimizer=torch.optim.SGD(net.parameters(), lr=SPEED),
                data_loader=DataLoader(
                    TensorDataset(features, codes), batch_size=max(1, int(RATE * len(codes))), generator=draws
                ),
                noise_multiplier=noise(self.epsilon),
                max_grad_norm=CLIP,
                noise_generator=draws,
            )
            done = 0
            while done < STEPS:
                for batch, labels in loader:
                    optimizer.zero_grad()
                    torch.autograd.backward(torch.nn.functional.cross_entropy(private(batch), labels))
                    optimizer.step()
                    done += 1
                    if done == STEPS:
                        break
        self.net_ = net
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities in the order of the declared labels."""
        import torch

        with torch.no_grad():
            return np.asarray(torch.softmax(self.net_(self._features(X)), dim=1).double().numpy())

    @staticmethod
    def _features(X: Any) -> Any:
        import torch

        X = np.asarray(X, dtype=np.float32)
        # a record's gradient is clipped as a whole: of unit length, none is cut for the size of its features alone
        return torch.from_numpy(X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12).astype(np.float32))
