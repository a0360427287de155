"""A refusal is about files, not about a row: an older approval counts on no copy of what was refused since."""

from datetime import timedelta

import pytest
from mlflow.exceptions import MlflowException

from privgate.errors import PrivgateError
from privgate.guard.config import Guard
from privgate.guard.diagnosis import examine
from privgate.guard.statement import Claims, Envelope
from privgate.guard.verification import verify
from privgate.registry.named import TAG

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore::FutureWarning")]


class Kept:
    """A version that was approved and then refused; the approval's text was kept, as any reader may keep it."""

    def __init__(self, registry, *, copied=False):
        self.registry, self.client = registry, registry.client
        self.client.create_registered_model("prod.credit")
        self.version = registry.log("credit")
        early = registry.claims("credit", self.version).signed - timedelta(minutes=10)
        registry.release("credit", self.version, signed=early, decided=early)
        self.text = registry.held_text("credit", self.version)
        self.source = self.client.get_model_version("credit", self.version).source
        if copied:
            self.copied = self.client.copy_model_version(f"models:/credit/{self.version}", "prod.credit").version
            self.client.set_registered_model_alias("prod.credit", "production", self.copied)

    def refuse(self, version=None):
        self.registry.sign("credit", version or self.version, passed=False, outcome="failed")

    def copy(self, text="", source="", name="credit"):
        """Return another version of the same files, perhaps with the kept approval."""
        return self.registry.create(name, source or self.source, tags={TAG: text} if text else None).version

    def promote(self, version):
        self.client.set_registered_model_alias("credit", "production", version)

    def verify(self):
        return verify(
            "models:/prod.credit@production", Guard.load(self.registry.site.config), tracking_uri=self.registry.address
        )


def delete_the_refused(k):
    copy = k.copy(k.text)
    k.client.delete_model_version("credit", k.version)
    k.promote(copy)


def rename_the_refused(k):
    k.client.rename_registered_model("credit", "moved")
    k.client.create_registered_model("credit")
    k.promote(k.copy(k.text))


def copy_before_the_refusal_was_taken(k):
    copy = k.copy()
    k.refuse()
    k.client.set_model_version_tag("credit", copy, TAG, k.text)
    k.promote(copy)


def take_the_refusal_from_a_copy(k):
    copy = k.copy()
    k.refuse()
    k.client.delete_model_version_tag("credit", copy, TAG)


def refuse_the_copy_itself(k):
    """Refuse the copy, delete it: the version that it was copied from carries the refusal."""
    copy = k.copy()
    k.refuse(copy)
    k.client.delete_model_version("credit", copy)
    k.client.set_model_version_tag("credit", k.version, TAG, k.text)
    k.promote(k.version)


#: whether the refusal comes first, and what is done
WAYS = {
    "copy in the same model": (True, lambda k: k.promote(k.copy(k.text, f"models:/credit/{k.version}"))),
    "copy of the same source": (True, lambda k: k.promote(k.copy(k.text))),
    "copy into a protected model": (True, lambda k: k.copy(k.text, f"models:/credit/{k.version}", "prod.credit")),
    "copy after deleting the refused": (True, delete_the_refused),
    "copy after renaming the refused": (True, rename_the_refused),
    "copy made before the refusal was taken": (False, copy_before_the_refusal_was_taken),
    "refusal taken from a copy": (False, take_the_refusal_from_a_copy),
    "copy that was refused itself": (False, refuse_the_copy_itself),
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("way", WAYS)
def test_an_old_approval_counts_on_no_copy_of_what_was_refused(quiet, way):
    kept, (refused_first, act) = Kept(quiet), WAYS[way]
    if refused_first:
        kept.refuse()
    with pytest.raises(MlflowException, match="PERMISSION_DENIED"):
        act(kept)
    for model in kept.client.search_registered_models():
        assert not kept.client.get_registered_model(model.name).aliases


def test_a_refusal_reaches_copies_that_are_released_and_no_database_takes_it_back(quiet):
    kept = Kept(quiet, copied=True)
    kept.verify()
    kept.refuse()
    for version in kept.client.search_model_versions():
        assert not Claims.read(Envelope.parse(version.tags[TAG]).statement).passed
    with pytest.raises(PrivgateError, match=r"failed, not an approval|not this version"):
        kept.verify()
    wrong = [a.text for a in examine(Guard.load(quiet.site.config), tracking_uri=quiet.address) if a.state == "wrong"]
    assert any("prod.credit" in text for text in wrong)

    with quiet.past() as past:
        past.execute("UPDATE model_version_tags SET value = ? WHERE name = 'prod.credit' AND key = ?", (kept.text, TAG))
    with pytest.raises(PrivgateError, match="was refused since"):
        kept.verify()
    with quiet.past() as past:
        past.execute("UPDATE model_versions SET current_stage = 'Deleted_Internal' WHERE name = 'credit'")
    with pytest.raises(PrivgateError, match="nobody can tell whether it was refused"):
        kept.verify()


def test_what_a_released_copy_rests_on_stays(quiet):
    kept = Kept(quiet, copied=True)
    for act, *arguments in (
        (kept.client.delete_model_version, "credit", kept.version),
        (kept.client.delete_model_version, "credit", f"0{kept.version}"),
        (kept.client.delete_registered_model, "credit"),
        (kept.client.rename_registered_model, "credit", "moved"),
    ):
        with pytest.raises(MlflowException, match="is released on the statement of models:/credit/1"):
            act(*arguments)
    kept.verify()
    kept.client.delete_model_version("prod.credit", kept.copied)
    kept.client.delete_model_version("credit", kept.version)


def test_a_later_approval_lifts_a_refusal(quiet):
    kept = Kept(quiet)
    copy = kept.copy()
    kept.refuse()
    later = quiet.claims("credit", kept.version).signed + timedelta(seconds=30)
    text = quiet.sign("credit", kept.version, signed=later, decided=later)
    kept.promote(kept.version)
    kept.client.set_model_version_tag("credit", copy, TAG, text)
    kept.promote(copy)
