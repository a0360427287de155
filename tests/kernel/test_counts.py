"""Counting models: no real refit of the library answers outside the limits."""


from privgate.kernel import Case
from tests.kernel import fuzz_counts as fuzz


def judged(family, problem, asked):
    make, X, y, person, settings, arrays, questions = problem
    truth = fuzz.changes(make, X, y, person, None if asked == "own" else questions)
    return fuzz.outside(Case(family, asked, settings, arrays), truth)
