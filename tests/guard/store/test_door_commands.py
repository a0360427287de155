"""The commands that people run, against an address of a model's author: nothing arrives there, and no password does."""

import pytest

from tests.guard.store import authors

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore::FutureWarning")]


#: command, place, kind: one for each step of a command that would ask there
CASES = [
    ("check", "the experiment", "http"),
    ("check", "the recipe's data", "http"),
    ("sign --renew", "the run", "mlflow-artifacts"),
    ("verify", "the run", "http"),
    ("verify", "a redirect 307", "redirect"),
    ("verify by MLflow's client", "the model's files", "mlflow-artifacts"),
    ("doctor", "the run", "mlflow-artifacts"),
    ("serve", "the run", "mlflow-artifacts"),
]
#: each command's quickest; a process of MLflow's is seconds, and the others run with the slow tests
QUICK = [CASES[i] for i in (1, 2, 4, 6, 7)]


def marked():
    for case in CASES:
        command, place, kind = case
        row = pytest.mark.attack(f"21 {kind or 'another host'} by {place}", command, "refused")
        yield pytest.param(*case, id=f"{command}-{place}", marks=[row, *([pytest.mark.slow] * (case not in QUICK))])


@pytest.mark.parametrize(("command", "place", "kind"), marked())
def test_nothing_arrives_at_the_author(authors_world, command, place, kind):
    _, said, found = authors.tried(authors_world, command, place, kind)
    assert found == authors.NOTHING, said


@pytest.mark.quick(1)
@pytest.mark.parametrize(("command", "place", "kind"), QUICK[2:] + QUICK[:2])
def test_where_the_operator_lists_the_address_it_is_asked_without_a_password(authors_world, command, place, kind):
    """Otherwise the tests above could not fail."""
    _, said, found = authors.tried(authors_world, command, place, kind, admitted=True)
    assert found["connected"], said
    assert found["told"], said
    assert not authors.password_in(found["told"]), found["told"]
