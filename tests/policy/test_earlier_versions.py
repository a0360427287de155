"""Policies as they were shipped: what was signed by one is still judged by it, to the last bit."""

import pytest

from privgate import Policy
from privgate.errors import PolicyError
from privgate.policy import problems

#: as releases of this package printed them
DIGESTS = {
    "attacks-1@1": "sha256:4a5a85fcd621feb265c59aac6b6376d77f5f38616a1fa2fe2faf344e48017a0c",
    "dp-trained@1": "sha256:0ffd76b26c83a2c68530988b64a44f2cb5b41f0c67ed66df2dcb0d15a7540b66",
    "dtp-1-attacks@1": "sha256:0d0f33d06a88d40df66e72958a29b92604924f0781485cdce8e3d472b64531f1",
    "dtp-1@1": "sha256:a99f7e6187011b578192eea60bfdf40baee58eadf0ce50d5276750a0f836de5e",
    "pdtp-1@1": "sha256:1ec11b8ff8d03a4bc0ad1cd4baf4437db815a652230ebe46f323b64694483358",
    "regression-1-attacks@1": "sha256:8e878c81b5eb72ac789811604eb0cdeb1f015fc082c056fed8541f80deed4ed8",
    "regression-1@1": "sha256:903077973cc7e4026cddcbb691b9e09e909dd91370f9d2a2c4c3680816b312d7",
    "share-1@2": "sha256:ee84b7c0fc35776e032b9ff732af8f2117cf4069e1f56fb8dcd1cbb2d573cbe8",
    "strict@3": "sha256:89403d649dd7d43cd9a6c6cb37c4a82e2e148f34a08be2b16ef99d67fe2e2809",
}


@pytest.mark.parametrize("name", DIGESTS)
def test_an_earlier_version_is_what_it_was(name):
    assert Policy.load(name).digest == DIGESTS[name]


def test_every_earlier_version_is_here_and_none_is_the_present_one():
    assert set(problems.earlier()) == set(DIGESTS)
    now = {f"{n}@{Policy.load(n).version}" for n in problems.shipped()}
    assert not now & set(DIGESTS)


def test_a_version_that_never_was_is_one_sentence():
    with pytest.raises(PolicyError, match="no shipped policy has this name"):
        Policy.load("dtp-1@99")


def test_every_shipped_policy_looks_at_the_file_first():
    for name in problems.shipped():
        assert "file" in {r.about.question for r in Policy.load(name).rules if r.mode == "enforce"}, name
