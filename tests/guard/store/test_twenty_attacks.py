"""More ways to release what was not approved, tried on a guarded server; what came of each is written down.

The table goes to ``build/released-is-approved.md``: way, path, result.
"""

import sqlite3

import pytest
from mlflow.exceptions import MlflowException

from privgate.errors import PrivgateError
from privgate.guard.config import Guard
from privgate.guard.doctor import examine
from privgate.guard.verify import verify
from tests import attack_table

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore::FutureWarning")]

TAG = "privgate.statement"


class Attacker:
    """Somebody with every right but the server's: an approved model, one that is not, and the approval's text."""

    def __init__(self, registry, tmp_path):
        self.registry, self.client, self.tmp_path = registry, registry.client, tmp_path
        self.good, self.bad = registry.log("credit"), registry.log("credit", payload="not approved")
        registry.release("credit", self.good, tmp_path)
        self.client.set_registered_model_alias("credit", "production", self.good)
        self.text = self.client.get_model_version("credit", self.good).tags[TAG]
        self.guard = Guard.load(registry.site.config)
        self.database = registry.folder / "tracking.db"

    def source(self, version):
        return self.client.get_model_version("credit", version).source

    def place(self, version):
        location = self.client.get_model_version_download_uri("credit", version)
        return self.registry.folder / "artifacts" / location.removeprefix("mlflow-artifacts:/")

    def promote(self, name, version="1", alias="production"):
        self.client.set_registered_model_alias(name, alias, version)

    def named(self, name, source, tags=None):
        """Register a version under a name of its own and promote it."""
        self.client.create_registered_model(name)
        made = self.client.create_model_version(name, source, tags=tags)
        self.promote(name, made.version)

    def rows(self, script):
        with sqlite3.connect(self.database, timeout=30) as past:
            past.executescript(script)

    def verify(self, uri="models:/credit@production", **options):
        return verify(uri, self.guard, tracking_uri=self.registry.address, **options)

    def wrong(self):
        return [a.text for a in examine(self.guard, tracking_uri=self.registry.address) if a.state == "wrong"]


# what is tried by the API, and must be refused there


def zero_width_name(a):
    a.named("credit\u200b", a.source(a.bad), {TAG: a.text})


def decomposed_name(a):
    a.named("cre\u0301dit", a.source(a.bad), {TAG: a.text})


def name_with_at(a):
    a.named("credit@production", a.source(a.bad), {TAG: a.text})


def name_with_question_mark(a):
    model_id = a.source(a.good).rpartition("/")[2]
    a.named(f"{model_id}?x", a.source(a.bad), {TAG: a.text})


def another_case(a):
    a.named("Credit", a.source(a.good), {TAG: a.text})


def statement_of_the_same_number(a):
    a.client.set_model_version_tag("credit", a.bad, TAG, a.text)
    a.promote("credit", a.bad)


def swapped_names(a):
    a.client.create_registered_model("swap")
    made = a.client.create_model_version("swap", a.source(a.bad), tags={TAG: a.text})
    a.client.rename_registered_model("swap", "prod.credit")
    a.promote("prod.credit", made.version)


def copy_of_a_copy_to_another_name(a):
    a.client.create_registered_model("prod.other")
    a.client.copy_model_version(f"models:/credit/{a.good}", "prod.other")


def copy_of_the_other_version(a):
    a.client.create_registered_model("prod.credit")
    a.client.create_model_version("prod.credit", f"models:/credit/{a.bad}", tags={TAG: a.text})


def raw_location_as_source(a):
    location = a.client.get_model_version_download_uri("credit", a.bad)
    good = a.client.get_model_version_download_uri("credit", a.good)
    a.named("raw", f"{good}/../../{location.split('/')[-2]}/artifacts", {TAG: a.text})


def stage_by_an_alias_statement(a):
    a.client.transition_model_version_stage("credit", a.good, "Production")


def another_protected_target(a):
    a.promote("credit", a.good, "Production")


def trailing_newline(a):
    a.client._get_registry_client().store.set_registered_model_alias("credit", "production\n", a.bad)


def rename_what_is_released(a):
    a.client.rename_registered_model("credit", "moved")


def older_statement(a):
    from datetime import timedelta

    now = a.registry.claims("credit", a.good, a.tmp_path)
    early = now.signed - timedelta(minutes=30)
    a.registry.sign("credit", a.good, a.tmp_path, signed=early, decided=early)


def a_prompt_into_a_protected_model(a):
    a.client.create_registered_model("prod.prompt")
    body = {
        "name": "prod.prompt",
        "source": "dummy-source",
        "tags": [{"key": "mlflow.prompt.is_prompt", "value": "true"}],
    }
    status, answer = a.registry.post("/api/2.0/mlflow/model-versions/create", body)
    if status == 403:
        raise MlflowException(answer["message"])


def version_in_other_digits(a):
    a.promote("credit", "\uff12")


def by_the_interface_of_prompts(a):
    a.client._get_registry_client().store.set_prompt_alias("credit", "production", a.bad)


def direction_marks_before_the_alias(a):
    a.client._get_registry_client().store.set_registered_model_alias("credit", "\u202eproduction", a.bad)


def a_copy_of_the_other_in_the_same_model(a):
    a.client.create_model_version("credit", f"models:/credit/{a.bad}", tags={TAG: a.text})
    a.promote("credit", "3")


REFUSED = (
    version_in_other_digits,
    by_the_interface_of_prompts,
    direction_marks_before_the_alias,
    a_copy_of_the_other_in_the_same_model,
    zero_width_name,
    decomposed_name,
    name_with_at,
    name_with_question_mark,
    another_case,
    statement_of_the_same_number,
    swapped_names,
    copy_of_a_copy_to_another_name,
    copy_of_the_other_version,
    raw_location_as_source,
    stage_by_an_alias_statement,
    another_protected_target,
    trailing_newline,
    rename_what_is_released,
    older_statement,
    a_prompt_into_a_protected_model,
)


def test_what_the_registry_sees_it_refuses(quiet, tmp_path):
    attacker, rows = Attacker(quiet, tmp_path), []
    for way in REFUSED:
        try:
            way(attacker)
            result = "LET THROUGH"
        except MlflowException:
            result = "refused"
        rows.append((way.__name__.replace("_", " "), "registry", result))
    assert {result for *_, result in rows} == {"refused"}, rows
    held = attacker.client.get_model_version_by_alias("credit", "production")
    assert held.version == attacker.good
    assert attacker.verify().claims.version == attacker.good
    assert attacker.wrong() == []
    _write(rows)


# what is done past the registry, and must be found by whoever deploys, and by the doctor


def storage_of_another(a):
    other = a.client.get_model_version_download_uri("credit", a.bad)
    a.rows(f"UPDATE model_versions SET storage_location = '{other}' WHERE version = {a.good}")


def source_of_another(a):
    a.rows(f"UPDATE model_versions SET source = '{a.source(a.bad)}' WHERE version = {a.good}")


def alias_to_another(a):
    a.rows(f"UPDATE registered_model_aliases SET version = {a.bad}")


def number_of_another(a):
    a.rows(
        f"UPDATE model_versions SET version = 77 WHERE version = {a.good};"
        f"UPDATE model_versions SET version = {a.good} WHERE version = {a.bad};"
    )


def link_to_elsewhere(a):
    place = a.place(a.good) / "weights.json"
    (a.tmp_path / "weights.json").write_bytes(place.read_bytes())
    place.unlink()
    place.symlink_to(a.tmp_path / "weights.json")


def file_in_privgates_folder(a):
    (a.place(a.good) / "privgate").mkdir()
    (a.place(a.good) / "privgate" / "extra.py").write_text("stolen = True")


def note_of_mlflow(a):
    (a.place(a.good) / "registered_model_meta").write_text("model_name: credit\nmodel_version: '1'\nmore: stolen\n")


def file_renamed(a):
    (a.place(a.good) / "weights.json").rename(a.place(a.good) / "Weights.json")


FOUND = (
    storage_of_another,
    source_of_another,
    alias_to_another,
    number_of_another,
    link_to_elsewhere,
    file_in_privgates_folder,
    note_of_mlflow,
    file_renamed,
)


@pytest.mark.quick(1)
@pytest.mark.parametrize("way", FOUND, ids=lambda way: way.__name__)
def test_what_goes_past_the_registry_is_found(quiet, tmp_path, way):
    attacker = Attacker(quiet, tmp_path)
    attacker.verify(to=tmp_path / "before")
    way(attacker)
    results = []
    for options in ({}, {"to": tmp_path / "after"}):
        try:
            attacker.verify(**options)
            results.append("LET THROUGH")
        except PrivgateError:
            results.append("refused")
    results.append("found" if attacker.wrong() else "NOT FOUND")
    assert results == ["refused", "refused", "found"]
    assert not (tmp_path / "after").exists()
    _write(
        [
            (way.__name__.replace("_", " "), path, r)
            for path, r in zip(("verify", "verify --to", "doctor"), results, strict=True)
        ]
    )


def test_the_verified_files_are_handed_over_to_no_place_that_is_taken(quiet, tmp_path):
    from privgate.errors import UsageError

    attacker = Attacker(quiet, tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    for taken in ("link", "file", "."):
        with pytest.raises(UsageError, match="exists"):
            attacker.verify(to=tmp_path / taken)
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(UsageError, match="cannot be handed over"):
        attacker.verify(to=tmp_path / "file" / "below")


def _write(rows):
    for row in rows:
        attack_table.note(*row)
