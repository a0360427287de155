"""Theorem 5 of Yeom et al. (2020): what inversion gains where errors are normal; a check, not a certificate."""

import math


def theorem_5(influence: float, inside: float, outside: float) -> float:
    """Return the advantage of Adversary 4 on a feature of two equally frequent values.

    Parameters
    ----------
    influence : float
        tau, by how much the feature moves the answer.
    inside, outside : float
        Standard errors on members and on other people, in the same unit; above 0.

    Examples
    --------
    >>> round(theorem_5(2.0, 1.0, 2.0), 4)
    0.1499
    >>> theorem_5(2.0, 1.0, 1.0), theorem_5(0.0, 1.0, 2.0)
    (0.0, 0.0)
    """
    return 0.5 * (
        math.erf(influence / (2 * math.sqrt(2) * inside)) - math.erf(influence / (2 * math.sqrt(2) * outside))
    )
