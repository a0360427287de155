"""A claim that is missing, contradictory or absurd is refused where it is stated; nothing is guessed."""

import json
import math

import pytest

from privgate import Claim
from privgate.errors import SubjectError

SGD = {"mechanism": "dp-sgd", "adjacency": "add_remove", "epsilon": 1.0, "delta": 1e-5}
STEPS = {"noise_multiplier": 1.0, "sample_rate": 0.01, "steps": 100, "sampling": "poisson"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"adjacency": "swap"}, "adjacency"),
        ({"epsilon": -0.5}, "negative"),
        ({"epsilon": 5000.0}, "guarantees nothing"),
        ({"epsilon": math.inf}, "finite"),
        ({"epsilon": "1"}, "finite number"),
        ({"delta": None}, "delta"),
        ({"delta": 0.0}, "no finite epsilon"),
        ({"epsilon": None}, "neither epsilon"),
        ({"epsilon": None, **STEPS, "steps": None}, "neither epsilon"),
        ({**STEPS, "noise_multiplier": 0.0}, "without noise"),
        ({**STEPS, "sampling": None}, "does not say how"),
        ({**STEPS, "sampling": "sometimes"}, "unknown"),
        ({**STEPS, "sample_rate": 1.5}, "sample_rate"),
        ({**STEPS, "steps": 1.5}, "steps"),
        ({"max_grad_norm": 0.0}, "max_grad_norm"),
        ({"mechanism": ""}, "mechanism"),
    ],
)
def test_bad_claims_are_refused_with_the_reason(change, words):
    with pytest.raises(SubjectError, match=words):
        Claim(**{**SGD, **change})


def test_good_claims_survive_the_round_trip():
    for claim in (
        Claim(**SGD),
        Claim(**{**SGD, **STEPS}),
        Claim(**{**SGD, **STEPS, "epsilon": None}),
        Claim("laplace", "replace_one", epsilon=0.5, delta=0, unit="person"),
    ):
        assert Claim.from_payload(json.loads(json.dumps(claim.payload()))) == claim


def test_a_recorded_claim_with_unknown_or_missing_entries_is_refused():
    with pytest.raises(SubjectError, match="unknown entries"):
        Claim.from_payload({**SGD, "epsilom": 1.0})
    with pytest.raises(SubjectError, match="mechanism"):
        Claim.from_payload({"epsilon": 1.0})


def test_a_delta_of_one_record_is_doubted():
    assert Claim(**SGD).doubts(1000) == ()
    assert "1/n" in Claim(**SGD).doubts(100_000)[0]
    assert "shuffled" in Claim(**{**SGD, **STEPS, "sampling": "shuffled"}).doubts(10)[0]
