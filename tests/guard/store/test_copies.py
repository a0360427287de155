"""A refusal is about files, not about a row: an older approval counts on no copy of what was refused since."""

from datetime import timedelta

import pytest
from mlflow.exceptions import MlflowException

from privgate.errors import PrivgateError
from privgate.guard.config import Guard
from privgate.guard.diagnosis import examine
from privgate.guard.signing import TAG
from privgate.guard.statement import Claims, Envelope
from privgate.guard.verification import verify
from tests import attack_table

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore::FutureWarning")]


class Kept:
    """A version that was approved and then refused; the approval's text was kept, as any reader may keep it."""

    def __init__(self, registry, tmp_path, *, copied=False):
        self.registry, self.client, self.tmp_path = registry, registry.client, tmp_path
        self.client.create_registered_model("prod.credit")
        self.version = registry.log("credit")
        early = registry.claims("credit", self.version).signed - timedelta(minutes=10)
        registry.release("credit", self.version, signed=early, decided=early)
        self.text = self.client.get_model_version("credit", self.version).tags[TAG]
        self.source = self.client.get_model_version("credit", self.version).source
        if copied:
            self.copy = self.client.copy_model_version(f"models:/credit/{self.version}", "prod.credit")
            self.client.set_registered_model_alias("prod.credit", "production", self.copy.version)

    def refuse(self, name="credit", version=None):
        self.registry.sign(name, version or self.version, passed=False, outcome="failed")

    def approvals(self):
        """Return who carries an approval."""
        held = self.client.search_model_versions()
        texts = {f"{v.name}/{v.version}": v.tags.get(TAG, "") for v in held}
        return {n for n, text in texts.items() if text and Claims.read(Envelope.parse(text).statement).passed}

    def verify(self, uri):
        return verify(uri, Guard.load(self.registry.site.config), tracking_uri=self.registry.address)


def copy_in_the_same_model(k):
    made = k.client.create_model_version("credit", f"models:/credit/{k.version}", tags={TAG: k.text})
    k.client.set_registered_model_alias("credit", "production", made.version)


def copy_of_the_same_source(k):
    made = k.registry.create("credit", k.source, tags={TAG: k.text})
    k.client.set_registered_model_alias("credit", "production", made.version)


def copy_into_a_protected_model(k):
    k.client.create_model_version("prod.credit", f"models:/credit/{k.version}", tags={TAG: k.text})


def copy_after_deleting_the_refused(k):
    made = k.registry.create("credit", k.source, tags={TAG: k.text})
    k.client.delete_model_version("credit", k.version)
    k.client.set_registered_model_alias("credit", "production", made.version)


def copy_after_renaming_the_refused(k):
    k.client.rename_registered_model("credit", "moved")
    k.client.create_registered_model("credit")
    made = k.registry.create("credit", k.source, tags={TAG: k.text})
    k.client.set_registered_model_alias("credit", "production", made.version)


def copy_made_before_the_refusal_was_taken(k):
    made = k.registry.create("credit", k.source)
    k.refuse()
    k.client.set_model_version_tag("credit", made.version, TAG, k.text)
    k.client.set_registered_model_alias("credit", "production", made.version)


def refusal_taken_from_a_copy(k):
    made = k.registry.create("credit", k.source)
    k.refuse()
    k.client.delete_model_version_tag("credit", made.version, TAG)


def copy_that_was_refused_itself(k):
    """Refuse the copy, delete it: the version that it was copied from carries the refusal."""
    made = k.registry.create("credit", k.source)
    k.client.set_model_version_tag("credit", k.version, "x", "y")
    k.refuse("credit", made.version)
    k.client.delete_model_version("credit", made.version)
    k.client.set_model_version_tag("credit", k.version, TAG, k.text)
    k.client.set_registered_model_alias("credit", "production", k.version)


WAYS = (
    copy_in_the_same_model,
    copy_of_the_same_source,
    copy_into_a_protected_model,
    copy_after_deleting_the_refused,
    copy_after_renaming_the_refused,
    copy_made_before_the_refusal_was_taken,
    refusal_taken_from_a_copy,
    copy_that_was_refused_itself,
)
_REFUSED_BY_THE_WAY = {copy_made_before_the_refusal_was_taken, refusal_taken_from_a_copy, copy_that_was_refused_itself}


@pytest.mark.quick(3)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_an_old_approval_counts_on_no_copy_of_what_was_refused(quiet, tmp_path, way):
    kept = Kept(quiet, tmp_path)
    if way not in _REFUSED_BY_THE_WAY:
        kept.refuse()
    with pytest.raises(MlflowException, match="PERMISSION_DENIED"):
        way(kept)
    for model in kept.client.search_registered_models():
        assert not kept.client.get_registered_model(model.name).aliases
    attack_table.note(f"old approval of the refused: {way.__name__.replace('_', ' ')}", "registry", "refused")


def test_a_refusal_reaches_copies_that_are_released(quiet, tmp_path):
    kept = Kept(quiet, tmp_path, copied=True)
    kept.verify("models:/prod.credit@production")
    kept.refuse()
    assert kept.approvals() == set()
    with pytest.raises(PrivgateError, match=r"failed, not an approval|not this version"):
        kept.verify("models:/prod.credit@production")
    said = [a.text for a in examine(Guard.load(quiet.site.config), tracking_uri=quiet.address) if a.state == "wrong"]
    assert any("prod.credit" in text for text in said)


def test_past_the_registry_an_old_approval_of_the_refused_does_not_verify(quiet, tmp_path):
    import sqlite3

    kept = Kept(quiet, tmp_path, copied=True)
    kept.refuse()
    with sqlite3.connect(quiet.folder / "tracking.db", timeout=30) as past:
        past.execute("UPDATE model_version_tags SET value = ? WHERE name = 'prod.credit' AND key = ?", (kept.text, TAG))
    with pytest.raises(PrivgateError, match="was refused since"):
        kept.verify("models:/prod.credit@production")
    with sqlite3.connect(quiet.folder / "tracking.db", timeout=30) as past:
        past.execute("UPDATE model_versions SET current_stage = 'Deleted_Internal' WHERE name = 'credit'")
    with pytest.raises(PrivgateError, match="nobody can tell whether it was refused"):
        kept.verify("models:/prod.credit@production")
    attack_table.note("old approval of the refused: written into the database", "verify", "refused")


def test_what_a_released_copy_rests_on_stays(quiet, tmp_path):
    kept = Kept(quiet, tmp_path, copied=True)
    for call in (
        lambda: kept.client.delete_model_version("credit", kept.version),
        lambda: kept.client.delete_registered_model("credit"),
        lambda: kept.client.rename_registered_model("credit", "moved"),
    ):
        with pytest.raises(MlflowException, match="is released on the statement of models:/credit/1"):
            call()
    kept.verify("models:/prod.credit@production")
    kept.client.delete_model_version("prod.credit", kept.copy.version)
    kept.client.delete_model_version("credit", kept.version)


def test_a_later_approval_lifts_a_refusal(quiet, tmp_path):
    kept = Kept(quiet, tmp_path)
    copy = kept.registry.create("credit", kept.source)
    kept.refuse()
    later = kept.registry.claims("credit", kept.version).signed + timedelta(seconds=30)
    kept.registry.sign("credit", kept.version, signed=later, decided=later)
    kept.client.set_registered_model_alias("credit", "production", kept.version)
    text = kept.client.get_model_version("credit", kept.version).tags[TAG]
    kept.client.set_model_version_tag("credit", copy.version, TAG, text)
    kept.client.set_registered_model_alias("credit", "production", copy.version)
