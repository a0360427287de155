"""Which cases of a law run by default: `make test` asks a few of each, `make test-slow` all the others."""

from collections.abc import Sequence

import pytest


def mark_the_rest_slow(items: Sequence[pytest.Item]) -> None:
    """Mark the cases of laws marked ``quick`` that the default run leaves out."""
    laws: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("quick") and hasattr(item, "callspec"):
            laws.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in laws.values():
        mark = cases[0].get_closest_marker("quick")
        asked = chosen(
            [tuple(enumerate(case.callspec._idlist)) for case in cases], *mark.args
        )  # one id a parametrization
        for k, case in enumerate(cases):
            if k not in asked:
                case.add_marker(pytest.mark.slow)


def chosen(cases: Sequence[tuple[tuple[object, object], ...]], most: int = 0) -> set[int]:
    """Return positions of cases that together show each value of each parameter; at most ``most``, spread evenly."""
    open_, taken = {value for case in cases for value in case}, list[int]()
    while open_:
        best = max(range(len(cases)), key=lambda k: len(open_ & set(cases[k])))
        taken.append(best)
        open_ -= set(cases[best])
    taken.sort()
    if most and len(taken) > most:
        taken = [taken[k * len(taken) // most] for k in range(most)]
    return set(taken)
