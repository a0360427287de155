"""Signals with a known answer, shared by the tests of attacks."""

import numpy as np
import pytest

from privgate.membership.attacks.self_test import plant


@pytest.fixture(scope="session")
def leaking():
    return plant(np.random.default_rng(11), leak=True)


@pytest.fixture(scope="session")
def blind():
    return plant(np.random.default_rng(12), leak=False)
