"""A key, a trust store that knows it, a statement that counts, and the row it is about."""

import dataclasses
from datetime import timedelta

import pytest

from privgate.guard import keys as truststore
from privgate.guard import statement, verification
from privgate.guard.keys import fresh_key, seal
from privgate.guard.statement import Claims


def digest(letter):
    return "sha256:" + letter * 64


class World:
    """What a registry, a signer and a verifier have in common; ``check`` says whether the row may be released."""

    def __init__(self):
        self.signer = truststore.new_key()
        self.now = statement.now().replace(microsecond=0)
        self.trust = truststore.TrustStore((fresh_key(self.signer.public_key, days=90, models=("*",)),))
        self.row = verification.Row("credit", "3", "models:/m-1", "s3://bucket/m-1", 1700, "run-1")
        self.terms = verification.Terms("prod-registry", digest("a"), "dtp-1")
        self.claims = Claims(
            registry="prod-registry", name="credit", version="3", source="models:/m-1", storage="s3://bucket/m-1",
            model_id="m-1", run_id="run-1", created=1700, files=digest("f"), versions=3,
            digests={"model": digest("1"), "recipe": digest("2"), "data": digest("3")},
            policy="dtp-1", policy_digest=digest("a"), report=digest("b"), evidence=digest("e"), outcome="passed",
            passed=True, decided=self.now - timedelta(minutes=1), signed=self.now,
            expires=self.now + timedelta(days=30), levels=("PRIVGATE_POLICY_DTP_1",), advisory=False,
            targets=(("credit", "production"), ("prod.credit", "production")), isolation="bubblewrap 0.8.0",
        )  # fmt: skip

    def envelope(self, signer=None, **changes):
        claims = dataclasses.replace(self.claims, **changes)
        return seal(claims.summary("0.1.0"), signer or self.signer)

    def check(self, text=None, *, row=None, terms=None, target="production", now=None, store=None):
        return verification.check(
            self.envelope().text() if text is None else text,
            store or self.trust,
            row or self.row,
            terms or self.terms,
            target=target,
            now=now or self.now,
        )


@pytest.fixture
def world():
    return World()
