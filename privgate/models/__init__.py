"""Models that can be certified: classifiers that one person cannot move far, and first steps that learn nothing.

They follow scikit-learn's conventions (``fit``, ``predict_proba``, ``get_params``) without importing it, and are
recipes like any other estimator.
"""

from privgate.models.ball_logistic import BallLogistic
from privgate.models.fixed import FixedOneHot, FixedScaler
from privgate.models.sharded import Sharded

__all__ = ["BallLogistic", "FixedOneHot", "FixedScaler", "Sharded"]
