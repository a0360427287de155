"""Watching a budget accountant: what diffprivlib's estimators spent, whichever accountant they were given."""

import warnings
from typing import Any, Self


class BudgetWatch:
    """Spends and warnings of one run; use as ``with BudgetWatch() as watch: train()``."""

    def __init__(self) -> None:
        self.spends: list[tuple[float, float]] = []
        self.hazards: list[str] = []

    def __enter__(self) -> Self:
        from diffprivlib import BudgetAccountant

        self._owner, self._original = BudgetAccountant, BudgetAccountant.__dict__["spend"]
        original = self._original

        def spend(accountant: Any, epsilon: float, delta: float) -> Any:
            done = original(accountant, epsilon, delta)
            self.spends.append((float(epsilon), float(delta)))
            return done

        BudgetAccountant.spend = spend
        self._caught = warnings.catch_warnings(record=True)
        self._log = self._caught.__enter__()
        warnings.simplefilter("always")
        return self

    def __exit__(self, *_: object) -> None:
        self._caught.__exit__(None, None, None)
        self._owner.spend = self._original
        for entry in self._log or ():
            if entry.category.__name__ == "PrivacyLeakWarning":
                text = f"diffprivlib warns of a privacy leak: {str(entry.message).strip().splitlines()[0]}"
                if text not in self.hazards:
                    self.hazards.append(text)
