"""Any attack, on what one query really returns: rounded, binned, listed or heated answers instead of exact ones."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator

from privgate.arrays import Float
from privgate.membership.attacks.attack_base import Attack, Scorer, Signals
from privgate.subject.release import Release, released


class OnRelease(Attack):
    """An attack of the catalogue whose adversary sees the declared release only, of target and shadow models alike.

    Run beside the same attack on exact probabilities, never instead: who sees exact probabilities can compute the
    release, but an attack with a threshold of its own may still do better on coarser answers.
    """

    def __init__(self, base: Attack, release: Release) -> None:
        self.base, self.release = base, release
        self.name = f"{base.name} on the release"
        self.title = f"{base.title}, on what is released"
        self.source, self.min_shadows, self.cut = base.source, base.min_shadows, base.cut
        self.per_record, self.asks = base.per_record, base.asks
        self.threat_model = f"as the declared release shows it: {base.threat_model}"

    def shown(self, log_p: Float) -> Float:
        """Return the logarithm of what is released, shape of ``log_p``; models that were not trained stay NaN."""
        failed = np.isnan(log_p).any(axis=-1, keepdims=True)
        return np.where(failed, np.nan, released(log_p, self.release))

    def fit(self, signals: Signals, rng: Generator) -> Scorer:
        names = ("target", "shadow", "near", "shadow_near")
        exact: dict[str, Any] = {name: getattr(signals, name) for name in names if getattr(signals, name) is not None}
        shown: dict[str, Any] = {name: self.shown(log_p) for name, log_p in exact.items()}
        scorer = self.base.fit(replace(signals, **shown), rng)
        return lambda target: scorer(self.shown(target))
