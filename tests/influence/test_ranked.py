"""Engines without a certificate rank people: what is claimed of them is what a random sample of refits shows."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, hypergeom
from sklearn.naive_bayes import BernoulliNB

from privgate import Recipe, Subject, TrainingData
from privgate.check.prepare import drawn
from privgate.evidence import BehindInfluence, Measurement, Request
from privgate.families import ridge
from privgate.families.answering import ALL
from privgate.families.chain import _compared
from privgate.families.engine import Asked
from privgate.families.recheck import at_random
from privgate.families.refit import Refit
from privgate.families.retrained import Retrained, Shown
from privgate.influence import aggregate
from privgate.influence.changes import per_unit
from privgate.kernel.sample import exceeding_limit
from privgate.policy.rules.pdtp import Pdtp
from privgate.statistics.leakage import largest_change
from privgate.training.fit import Answer
from tests.in_process import InProcess

N = 400
CERTAIN = {"logistic", "tree_ensembles", "sharded", "refit"}
REQUESTS = [
    Request.of("pdtp"),
    Request.of("pdtp", aggregate="quantile", q=0.9),
    Request.of("pdtp", aggregate="share_above", threshold=1.0),
]


def trained(X, y, *, seed):
    return BernoulliNB().fit(X, y)


SUBJECT = Subject.local(Recipe(trained, seed=0), TrainingData(np.arange(N)[:, None] % 2, np.arange(N) % 2))


class Known(InProcess):
    """Trainings whose answers are known: the chance of a person's first label falls e^truth-fold without them."""

    def __init__(self, truth, draw):
        super().__init__()
        self.truth = np.append(truth, 0.0)
        self.ledger = SimpleNamespace(drawn=lambda *_: draw.to_bytes(8, "big"))

    def fits(self, subject, fits, *, label="retraining"):
        return [Answer(about(self.truth[f.left_out[0] if len(f.left_out) else -1], len(f.queries))) for f in fits]


def about(change, rows=1):
    first = np.full(rows, np.log(0.5)) - change
    return np.column_stack([first, np.log1p(-np.exp(first))])


class Liar(Refit):
    """Says whatever it was told of each person, in the name and with the rights of an engine of the catalogue."""

    real = False

    def __init__(self, says, engine):
        self.says, self.engine = says, engine
        self.name, self.tolerance, self.certain = engine.name, engine.tolerance, engine.certain

    def answers(self, asked):
        without = np.concatenate([about(v) for v in self.says])
        made = Retrained.of(self.name, asked.units, asked.seeds, asked.rows, about(0.0, N)[None], without[None])
        return made, asked.units[:0]


def claimed(says, truth, draw, engine=ridge.ENGINE):
    """Return what is claimed of people by each aggregate; None where the re-check contradicts the engine."""
    asked = Asked(SUBJECT, np.arange(N), (0,), Known(truth, draw))
    engine = Liar(says, engine)
    checked, made = _compared(engine, asked, engine.answers(asked)[0])
    if checked.outcome != "passed":
        return None
    columns = per_unit(made, SUBJECT.release)
    ranking = aggregate.Ranking.of(made, np.zeros(N, dtype=bool))
    value, low, high = (columns[c] for c in ("pdtp", "pdtp_low", "pdtp_high"))
    return [aggregate.asked(r, value, low, high, N, ranking=ranking) for r in REQUESTS]


def wrong(found, truth):
    """Return which of the claims about everybody are false."""
    largest, quantile, share = found
    change = np.array([largest_change(about(0.0), about(t))[0] for t in truth])
    return (
        (change > largest.high + 1e-9).mean() > (largest.beyond or 0.0) + 1e-9,
        np.quantile(change, 0.9, method="inverted_cdf") > quantile.high + 1e-9,
        (change > 1.0).mean() > share.high + 1e-9,
    )


@pytest.mark.parametrize("engine", ALL, ids=lambda engine: engine.name)
def test_only_who_trains_for_real_or_has_the_kernels_limits_is_certain(engine):
    assert engine.certain == (engine.name in CERTAIN)


@pytest.mark.quick(5)
@pytest.mark.parametrize("engine", [e for e in ALL if e.name not in CERTAIN], ids=lambda engine: engine.name)
def test_an_engine_that_lies_of_one_in_ten_never_shows_more_than_the_share(engine):
    """Whoever is lied about and not drawn stays unseen: then the claim leaves out at least so many."""
    rng, draws, false, caught = np.random.default_rng(len(engine.name)), 30, np.zeros(3), 0
    for draw in range(draws):
        truth = np.full(N, 0.3)
        truth[rng.permutation(N)[: N // 10]] = 2.0
        found = claimed(np.where(truth > 1, truth / 4, truth), truth, draw, engine)
        caught += found is None
        false += (False,) * 3 if found is None else wrong(found, truth)

    assert (false <= binom.ppf(0.999, draws, 0.05)).all()
    assert caught > draws / 2


@pytest.mark.quick(1)
@pytest.mark.parametrize("share", [0.02, 0.06, 0.3])
def test_an_engine_that_says_nothing_of_anybody_approves_within_its_level(share):
    """It is right about people who matter to nobody, and the sample alone speaks of the others."""
    draws, false = 100, 0  # none of them beyond the level
    truth = np.where(np.arange(N) < share * N, 2.0, 0.0)
    for draw in range(draws):
        found = claimed(np.zeros(N), truth, draw)
        within = found is not None and found[0].high <= 1
        false += within and (truth > 1).mean() > found[0].beyond
    assert false <= binom.ppf(0.999, draws, 0.05)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(REQUESTS), st.floats(0.1, 3))
def test_a_refusal_names_a_refit(seed, request, limit):
    rng = np.random.default_rng(seed)
    value, spread = rng.exponential(1, 90), rng.exponential(0.05, 90)
    shown = rng.choice([Shown.RANKED, Shown.CHOSEN, Shown.DRAWN], 90, p=[0.7, 0.1, 0.2])
    shown[0] = Shown.RANKED
    made = replace(ranks(90), shown=shown.astype(object))
    low = np.maximum(value - spread, 0.0)
    found = aggregate.asked(
        request, value, low, value + spread, 90, ranking=aggregate.Ranking.of(made, np.zeros(90, dtype=bool))
    )
    share = request.option("aggregate") == "share_above"

    assert found.low <= found.value <= found.high
    if found.low > (0.0 if share else limit):
        assert shown[found.where] != Shown.RANKED
        assert low[found.where] > (1.0 if share else limit)


def ranks(n):
    rows = (np.arange(n), np.arange(n))
    return Retrained.of("ridge", np.arange(n), (0,), rows, np.zeros((1, n, 2)), np.zeros((1, n, 2)))


def test_where_nobody_was_drawn_nothing_is_limited():
    value = np.full(90, 0.1)
    ranking = aggregate.Ranking.of(ranks(90), np.zeros(90, dtype=bool))

    largest, quantile, share = (aggregate.asked(r, value, value, value, 90, ranking=ranking) for r in REQUESTS)

    assert (largest.high, quantile.high, share.high) == (np.inf, np.inf, 1.0)
    assert (largest.low, quantile.low, share.low) == (0.0, 0.0, 0.0)


def test_few_people_are_all_refitted_and_nobody_is_left_out():
    made = replace(ranks(40), shown=np.full(40, Shown.DRAWN, dtype=object))
    ranking = aggregate.Ranking.of(made, np.zeros(40, dtype=bool))
    value = np.linspace(0, 1, 40)

    found = aggregate.asked(REQUESTS[0], value, value, value, 40, ranking=ranking)

    assert (found.low, found.high, found.confidence, found.beyond) == (1.0, 1.0, None, None)


def test_the_number_is_the_kernels():
    shown = np.array([Shown.DRAWN] * 59 + [Shown.RANKED] * 941, dtype=object)
    ranking = aggregate.Ranking.of(replace(ranks(1000), shown=shown), np.zeros(1000, dtype=bool))
    value = np.full(1000, 0.2)

    found = aggregate.asked(REQUESTS[0], value, value, value, 1000, ranking=ranking)

    assert (found.high, found.beyond, found.confidence) == (0.2, exceeding_limit(0, 59, 1000, alpha=0.05) / 1000, 0.95)
    assert "59 drawn at random" in found.claim


def test_a_sentence_says_for_whom_it_is_shown():
    rule = Pdtp(max=1.0)

    def said(low, high, beyond=0.048):
        m = Measurement(rule.request(), high, low, high, unit="nats", kind="confidence", confidence=0.95, where="ada",
                        behind=BehindInfluence(beyond=beyond))  # fmt: skip
        return rule.judge(m)

    assert said(0.2, 0.2).message == (
        "1.22-fold (0.2 nats) (estimate, 95 % confidence); at most 2.72-fold (1 nat) is allowed: approved "
        "(for all but 4.8 % of people at most (95 % sure); approved for direct queries only) (ada)"
    )
    assert "approved (for everybody (95 % sure); " in said(0.2, 0.2, 0.0).message
    assert said(0.2, 0.2).meaning.startswith("for all but 4.8 % of people at most (95 % sure): without this person")
    assert said(3.0, 3.0).message == (
        "20.1-fold (3 nats) (estimate, 95 % confidence); at most 2.72-fold (1 nat) is allowed: refused (ada)"
    )


@pytest.mark.parametrize(
    ("limit", "people"), [({"max": 1.0}, 59), ({"max": 0.01, "aggregate": "share_above", "threshold": 1.0}, 299)]
)
def test_as_many_are_drawn_as_a_rule_about_shares_takes(limit, people):
    assert drawn(SimpleNamespace(rules=[Pdtp(**limit)])) == people


@pytest.mark.parametrize("shown", [Shown.COMPARED, Shown.RANKED])
@pytest.mark.parametrize("people", [40, 400])
def test_a_comparison_whose_answers_stand_nowhere_limits_nobody(shown, people):
    """Of several seeds one, or draws of the same kind: an engine's silence about a minority passes both."""
    made = SimpleNamespace(shown=np.full(people, shown), engine=np.full(people, "out_of_bag"))
    ranking = aggregate.Ranking.of(made, np.zeros(people, dtype=bool))

    assert not ranking.enough
    assert ranking.beyond(np.zeros(people), 1.0, people) == people


@pytest.mark.parametrize("people", [320, 400, 500, 700, 1000, 1196, 5000, 20_000])
@pytest.mark.parametrize("share", [0.01, 0.02])
def test_a_yes_of_two_looks_is_wrong_no_oftener_than_its_level(people, share):
    """One person too many exceeds, of whom the engine says nothing: at 299 people, then at as many as it takes."""
    request = Request.of("pdtp", aggregate="share_above", threshold=1.0, sample=299, up_to=20_000, limit=share)
    allowed = int(share * people)

    def passes(seen, over, grew):
        high = np.zeros(people)
        high[:over] = 2.0
        if not grew:
            return aggregate.asked(request, high[:seen], high[:seen], high[:seen], people).high <= share + 1e-12
        everybody = np.arange(people)
        ranking = aggregate.Ranking(((everybody, everybody[:seen]),), everybody < seen, ("ridge",), grew)
        return aggregate.asked(request, high, high, high, people, ranking=ranking).high <= share + 1e-12

    first, then = 299, aggregate.second(request, people)
    least = [next((k for k in range(n) if not passes(n, k, grew)), n) for n, grew in ((first, False), (then, True))]
    chances = [hypergeom(people, allowed + 1, n).cdf(k - 1) for n, k in zip((first, then), least, strict=True)]
    assert sum(chances) <= 0.05
    assert then == people or least[1] >= least[0] + 2  # or looking again could hardly approve


def test_the_first_people_of_a_sample_that_grew_are_those_of_its_first_look():
    asked = Asked(SUBJECT, np.arange(N), (0,), Known(np.zeros(N), 3), drawn=120, first=np.arange(50, 90))
    made = Liar(np.zeros(N), ridge.ENGINE).answers(asked)[0]
    some = at_random(asked, made)
    assert set(some[:40]) == set(range(50, 90))
    assert len(set(some)) == 120
    assert not len(at_random(replace(asked, drawn=0), made))
