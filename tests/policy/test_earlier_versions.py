"""Policies as they were shipped: what was signed by one is still judged by it, to the last bit."""

import pytest

from privgate import Policy
from privgate.errors import PolicyError
from privgate.policy import problems

#: as releases of this package printed them
DIGESTS = {
    "release-1@6": "sha256:4950264464a2ed280cb78a2560ffc1936e68fc81443e9c8d5da786cc0ab7a27b",
    "attacks-1@4": "sha256:805e26479cddf6387279f9de113c2bb4f769b88548a38f0ccf1fb70d2ac6ff0b",
    "dtp-1-attacks@5": "sha256:0c285b649229aec7b7e687b7431d91ce187e50cd6195695a61f5623e914f9872",
    "regression-1-attacks@4": "sha256:eb781188a5c8902f653aa52a150daec936ad8bbd3673380dfcd718d4a6399fc5",
    "strict@6": "sha256:631bbc4b4bc66e84ab858cc923eac429aa4ec8c18f63a27bcdc01bc75af97286",
    "dp-trained@3": "sha256:bb09c41ef30aad1254c49193b8c4b9201441ff6f2a025960a3d4aea396c59de2",
    "release-1@5": "sha256:3d8c7ecfda00a42683dffe37d7845078d4172ab4c4a8919a4118dd6697eb3366",
    "share-1@6": "sha256:e81ec089576984cd58dbbe62dac40d5c8b576c7bc2766d40a891bca49732f3fd",
    "deletion-1@1": "sha256:1334d651660184750a8d9e0eb16596c0752154fbd0ae91b02b934027cb016f3d",
    "dtp-1@3": "sha256:3f9390a9e8c7be62e576e7d69b3ea0f343dfbe6e7df5e8c2273aee8f07982907",
    "attacks-1@3": "sha256:ff1673d250c97a98d577fd32d0817b1a11e64bc1038069fbfab0d2c35cf5f64a",
    "dp-trained@2": "sha256:78dfced9e938997ba4a4ea97f97fafb2c071c42e744b7abc2d6db65dc0c12ead",
    "dtp-1-attacks@4": "sha256:079648c75483ea321a6f6930bc65304bd88cdcca2cdc74019c52e6a8cabce296",
    "pdtp-1@4": "sha256:0159a697efd3bc128b414ee3ce444a08878a0af572258cb5e87ed570ca686b4c",
    "regression-1@2": "sha256:08fdf4ec95c9ba6e77296b6f01e539ab1cb9e0dff5c67abc1930a2ad5d04e18c",
    "regression-1-attacks@3": "sha256:2e0198e92da98ecfe65116de9eae2d360c5c18f31fbe3733ca5db5f6405e7652",
    "release-1@4": "sha256:b7cee48f9363619e57d1c689c1c779a2a360a86e683dd21e225f1039e7d046ad",
    "share-1@5": "sha256:8c11cbf3cd42fb449af25198e30a9088a683c65f8fdfc841d83ca792d869db47",
    "strict@5": "sha256:83122791f64ed369c0fa885a730dcf4366de48150c909dc09ee0fe566205a258",
    "attacks-1@2": "sha256:386e02d5b228894b63d6ea20594cb7d7f871895a6820d824caaa54b307d9e8b1",
    "dtp-1-attacks@2": "sha256:e9e82368b57ca854df2ef6b470dd69320b365ceacd08c5b9d7d91dc7273c28f0",
    "regression-1-attacks@2": "sha256:88d42321bfca23b4235c4bb34676408151b8ab898c1dc45e76a2fe302df0f9ca",
    "release-1@3": "sha256:019e801a6911beb4df1823af61497927d7d8a2f281cb56c5ea4aef00d3f7b2ad",
    "attacks-1@1": "sha256:4a5a85fcd621feb265c59aac6b6376d77f5f38616a1fa2fe2faf344e48017a0c",
    "dp-trained@1": "sha256:0ffd76b26c83a2c68530988b64a44f2cb5b41f0c67ed66df2dcb0d15a7540b66",
    "dtp-1-attacks@1": "sha256:0d0f33d06a88d40df66e72958a29b92604924f0781485cdce8e3d472b64531f1",
    "dtp-1@2": "sha256:b608cfbf4e627817804a3f48b98c1c36482b2cbe4af1dc1593eafe89f3aac0ea",
    "dtp-1-attacks@3": "sha256:dcf8d5c622ac3e8b552803b7da3bcd68ff1da553b1fae66d3358e383eb180154",
    "strict@4": "sha256:0d51f40baa34e7e9b8eefba634778380cfeb885c17717c48c0ce93eb05c4ee91",
    "dtp-1@1": "sha256:a99f7e6187011b578192eea60bfdf40baee58eadf0ce50d5276750a0f836de5e",
    "pdtp-1@1": "sha256:1ec11b8ff8d03a4bc0ad1cd4baf4437db815a652230ebe46f323b64694483358",
    "regression-1-attacks@1": "sha256:8e878c81b5eb72ac789811604eb0cdeb1f015fc082c056fed8541f80deed4ed8",
    "regression-1@1": "sha256:903077973cc7e4026cddcbb691b9e09e909dd91370f9d2a2c4c3680816b312d7",
    "pdtp-1@2": "sha256:2af4a2302849a9544efd970f1ceab251d58b5a4be5fc602b5f891746104adbca",
    "pdtp-1@3": "sha256:ddec8f31ebfd62b655cf9ed7f41eba9f47446cde6d54049631c562b7783abdba",
    "share-1@3": "sha256:cdd875f0be140fee90a8121b1d066251df3403718546fbfad4b3d6c17c6a2798",
    "share-1@4": "sha256:a1a30cef7ef1aeabce0f2d07bc7ab3b9f5b2ed562dc625fdc351d86aae5fc197",
    "release-1@2": "sha256:01b9fb31c28452593a1c53ebe1bed0cf2a1286eddef43bd545e72b7269c06a27",
    "share-1@2": "sha256:ee84b7c0fc35776e032b9ff732af8f2117cf4069e1f56fb8dcd1cbb2d573cbe8",
    "release-1@1": "sha256:4e81ed8e9393c586d0208696a06b69b3545f4644d55e4c4d3e9f46e639ae2a06",
    "share-1@1": "sha256:3b2292b79457eb2e88c3a243745066e5848c806584c5e2daf11a8c6d9f07c644",
    "strict@2": "sha256:7c58da65a033a260b420c4cb94efe63a492945a0edbfdbe5a5a2584ad412bfc6",
    "strict@3": "sha256:89403d649dd7d43cd9a6c6cb37c4a82e2e148f34a08be2b16ef99d67fe2e2809",
}


@pytest.mark.parametrize("name", DIGESTS)
def test_an_earlier_version_is_what_it_was(name):
    assert Policy.load(name).digest == DIGESTS[name]


def test_every_version_that_was_shipped_is_here():
    """A policy that is changed gets another version, and a copy of what it was below ``earlier``."""
    now = {f"{n}@{Policy.load(n).version}" for n in problems.shipped()}
    assert now | set(problems.earlier()) == set(DIGESTS)
    assert not now & set(problems.earlier())


def test_a_version_that_never_was_is_one_sentence():
    with pytest.raises(PolicyError, match="no shipped policy has this name"):
        Policy.load("dtp-1@99")
