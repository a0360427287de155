"""Nothing else is released than what was approved: each attack from check to what a consumer's load really returns."""

import contextlib
import json
import pickle
import shutil
import sqlite3
import threading

import mlflow
import numpy as np
import pytest
import yaml
from mlflow.exceptions import MlflowException
from sklearn.tree import DecisionTreeClassifier

from privgate import Recipe, digest, log_recipe
from privgate.__main__ import run
from privgate.errors import PolicyError, SubjectError
from privgate.guard import statement
from privgate.guard.config import Guard
from privgate.guard.diagnosis import examine
from privgate.guard.keys import seal
from privgate.guard.signing import TAG
from privgate.guard.store import guarded_store
from privgate.guard.writes import HIDING
from privgate.registry import attached
from privgate.registry.files import model_files
from privgate.training.isolation import choose_isolation as isolation_of
from tests.guard.store.conftest import DATA, GOOD

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore::FutureWarning")]

QUERIES = np.array([[0, 0, 0, 0], [2, 1, 0, 2], [1, 1, 1, 1]])


class Company:
    """A data scientist's laptop, a signer and a deployment, before one guarded server."""

    def __init__(self, registry, folder):
        self.registry, self.client, self.address = registry, registry.client, registry.address
        self.folder, self.site, key = folder, registry.site, folder / "key.pem"
        key.write_bytes(self.site.signer.private_bytes)
        key.chmod(0o600)
        self.signing = ("--policy", "dtp-1", "--config", str(self.site.config), "--key", str(key))
        self.bad = Recipe(DecisionTreeClassifier(), seed=1)

    def log(self, name, recipe=GOOD):
        """Log and register a model, honestly; return its id."""
        return self.registry.log_recipe(name, recipe)

    def artifacts(self, model_id):
        """Return the folder of a logged model, which anybody may write to by the artifact service."""
        location = self.client.get_logged_model(model_id).artifact_location
        return self.registry.folder / "artifacts" / location.removeprefix("mlflow-artifacts:/")

    def sign(self, out, *more):
        return run(["sign", str(out), *self.signing, *more, "--tracking-uri", self.address])

    def release(self, name, version="1", alias="production"):
        """Check, sign and promote as the README says; return the first step that refuses, or "released"."""
        out = self.folder / f"out-{len(list(self.folder.iterdir()))}"
        command = ["check", f"models:/{name}/{version}", "--policy", "dtp-1", "--report-dir", str(out), "--jobs", "1"]
        if code := run([*command, "--tracking-uri", self.address]):
            return f"check exits with {code}"
        if code := self.sign(out, "--checked-elsewhere"):
            return f"sign exits with {code}"
        try:
            self.client.set_registered_model_alias(name, alias, version)
        except MlflowException as exc:
            return "the registry refuses" if "privgate" in str(exc) else f"an error: {exc}"
        return "released"

    def past(self):
        """Return a client of the database itself, past the server."""
        database = f"sqlite:///{self.registry.folder}/tracking.db"
        return mlflow.MlflowClient(database, registry_uri=database)

    def verify(self, name, *more):
        config = ["--config", str(self.site.config), "--tracking-uri", self.address]
        return run(["verify", f"models:/{name}@production", *config, *map(str, more)])

    def wrong(self):
        guard = Guard.load(self.site.config)
        return [a.text for a in examine(guard, tracking_uri=self.address) if a.state == "wrong"]

    def served(self, uri):
        """Return what a consumer's load really answers; None if it loads nothing."""
        mlflow.set_tracking_uri(self.address)
        try:
            return np.asarray(mlflow.pyfunc.load_model(uri, suppress_warnings=True).predict(QUERIES))
        except (MlflowException, OSError):
            return None
        finally:
            mlflow.set_tracking_uri(None)

    def answers(self, recipe):
        return recipe.train(DATA.X, DATA.y, seed=recipe.seed).predict_proba(QUERIES)


@pytest.fixture
def company(quiet, tmp_path):
    return Company(quiet, tmp_path)


@pytest.fixture(scope="module")
def pickles():
    """Let models of other formats be loaded, as consumers of such models must."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "true")
        yield


@pytest.mark.outside
def test_an_honest_release_verifies_is_handed_over_and_is_what_is_served(company, tmp_path, capsys):
    model_id = company.log("credit")
    assert company.release("credit") == "released"
    np.testing.assert_allclose(company.served("models:/credit@production"), company.answers(GOOD))
    assert company.wrong() == []
    capsys.readouterr()
    assert company.verify("credit") == 0
    said = capsys.readouterr().out
    pin = company.client.get_model_version_download_uri("credit", "1")
    row = company.client.get_model_version("credit", "1")
    claims = statement.Claims.read(statement.Envelope.parse(row.tags[TAG]).statement)
    assert f"pin: {pin}" in said
    assert f"digest: {claims.files}" in said
    assert (claims.model_id, claims.run_id, claims.storage) == (model_id, row.run_id, pin)
    assert (claims.versions, claims.isolation) == (1, isolation_of("auto"))

    to = tmp_path / "deployed" / "model"
    assert company.verify("credit", "--to", to) == 0
    np.testing.assert_allclose(company.served(str(to)), company.answers(GOOD))
    assert company.verify("credit", "--to", to) == 2  # never into a folder that is there
    served = {p.relative_to(to).as_posix(): p.read_bytes() for p in to.rglob("*") if p.is_file()}
    assert not any("report" in path for path in served)
    assert not (company.artifacts(model_id) / "privgate" / "reports").exists()

    # any file there is, changed after approval, is found and handed over to nobody
    for changed in ([min(served)], sorted(served)):
        for path in changed:
            (company.artifacts(model_id) / path).write_bytes(served[path] + b"\n")
        capsys.readouterr()
        assert company.verify("credit", "--to", tmp_path / "other") == 4
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        assert f"({changed[0]!r}{more};" in capsys.readouterr().err
        assert not (tmp_path / "other").exists()


# 1: a fragment that MLflow does not parse


@pytest.mark.slow
@pytest.mark.attack("1 a source with a fragment", "check", "refused")
def test_a_source_with_a_fragment_is_not_taken_for_another_model(company):
    good = company.log("innocent")
    company.log(f"m-{good.removeprefix('m-')}#", company.bad)
    company.client.create_registered_model("risk")
    company.client.create_model_version("risk", f"models:/{good}#/1")
    assert company.release("risk") != "released"
    assert company.served("models:/risk@production") is None
    assert company.release(f"{good}#") == "check exits with 4"  # and such a name is released by nobody


# 2: a source that is a name, which means another version later


@pytest.mark.slow
@pytest.mark.attack("2 a source that is a name", "check", "refused")
def test_a_source_that_names_another_version_by_now_is_refused(company):
    company.log("stage", company.bad)
    company.client.create_registered_model("risk")
    company.client.create_model_version("risk", "models:/stage/1")
    company.client.delete_registered_model("stage")
    company.log("stage")
    assert company.release("risk") == "check exits with 4"
    assert company.served("models:/risk@production") is None

    company.client.delete_registered_model("stage")  # where the name is gone, the row's own files are what is checked
    assert company.release("risk") in {"check exits with 1", "check exits with 5"}


# 3: names that are patterns


@pytest.mark.attack("3 a model named like a pattern", "check", "refused")
def test_a_model_named_like_a_pattern_is_not_checked(company):
    company.registry.log("[c]redit")
    assert company.release("[c]redit") == "check exits with 4"


@pytest.mark.attack("3 a target that is a pattern", "sign", "refused")
@pytest.mark.attack("a version made again between check and sign", "sign", "refused")
def test_the_signer_signs_only_names_and_only_the_row_that_was_checked(company, tmp_path):
    """The version is deleted and made again of the same files, between check and sign."""
    company.log("credit")
    assert company.release("credit", alias="staging") == "released"
    (out,) = tmp_path.glob("out-*")
    for target in ("*@production", "prod.*@production", "credit@prod*", "credit@productıon", "a#@production"):
        assert company.sign(out, "--target", target) == 4, target
    assert company.sign(out) == 0
    company.client.delete_registered_model("credit")
    company.log("credit", company.bad)
    assert company.sign(out) == 4


# 4: prompts


@pytest.mark.attack("4 a model that calls itself a prompt", "doctor", "found")
@pytest.mark.attack("4 a version that hides others as a prompt", "doctor", "found")
def test_the_doctor_asks_what_calls_itself_a_prompt_too(company):
    """A version that calls itself a prompt hides all others of its model from every list, and none from readers."""
    for name, payload in (("credit", "one"), ("credit", "two"), ("other", "one")):
        company.registry.log(name, payload=payload)
    past = company.past()
    past.transition_model_version_stage("credit", "2", "Production")
    company.client.set_model_version_tag("credit", "1", HIDING, "true")
    assert company.client.search_model_versions("name='credit'") == []
    past.set_registered_model_alias("other", "production", "1")
    past.set_registered_model_tag("other", HIDING, "true")  # hides it from every search
    wrong = "\n".join(sorted(company.wrong()))
    assert wrong.count("is released but does not verify") == 2
    for place in ("models:/credit/2 as 'Production'", "models:/other/1 as 'production'"):
        assert f"{place} is released but does not verify" in wrong


# 5: files that no digest covered


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "served",
    [
        pytest.param({"model_path": "metadata/../privgate/reports/dtp-1/model.pkl"}, marks=pytest.mark.slow),
        {"model_path": "privgate/reports/dtp-1/model.pkl"},
        {"code": "privgate", "loader_module": "reports.serving"},
        pytest.param({"code": ".", "loader_module": "privgate.reports.serving"}, marks=pytest.mark.slow),
        {"data": "../elsewhere"},
        pytest.param({"data": "/srv/models/other"}, marks=pytest.mark.slow),
        {"data": "inner"},
        {"code": "lib"},
    ],
    ids=str,
)
@pytest.mark.attack("5 served files that nothing covers", "log_recipe, check, load", "refused")
def test_what_is_served_lies_in_the_covered_files(company, pickles, served):
    """The MLmodel file is changed before the recipe is attached, so that everything is recorded as it is."""
    model_id = company.log("credit")
    folder = company.artifacts(model_id)
    shutil.rmtree(folder / "privgate")
    for place in ("metadata", "inner", "lib/sklearn"):
        (folder / place).mkdir(parents=True)
    (folder / "lib/sklearn/__init__.py").write_text("stolen = True\n")
    for place in (folder / "inner", folder):
        content = yaml.safe_load((folder / "MLmodel").read_text())
        content["flavors"]["python_function"].update(served if place == folder else {})
        (place / "MLmodel").write_text(yaml.safe_dump(content))
    if served.get("data") != "inner":
        shutil.rmtree(folder / "inner")
    with pytest.raises(SubjectError, match="log"):
        log_recipe(f"models:/{model_id}", GOOD, DATA, tracking_uri=company.address, store="artifacts")
    assert company.release("credit") == "check exits with 4"
    assert company.served("models:/credit@production") is None


@pytest.mark.attack("5 files put in after approval", "verify", "refused")
@pytest.mark.attack("5 files put in after approval", "doctor", "found")
def test_nothing_in_the_served_folder_may_change_after_approval(company):
    model_id = company.log("credit")
    company.registry.release("credit", "1", alias="production")
    for path in ("privgate/reports/dtp-1/model.pkl", "registered_model_meta", "a/b"):
        place = company.artifacts(model_id) / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"stolen")
        assert company.verify("credit") == 4, path
        if path == "a/b":
            assert len(company.wrong()) == 1
        place.unlink()
    assert company.verify("credit") == 0


# 6: another pickle for each flavor


@pytest.mark.parametrize("declared", ["python_function", "sklearn"])
@pytest.mark.attack("6 another pickle for one flavor", "check", "refused")
def test_every_flavor_opens_the_model_that_is_checked(company, pickles, declared):
    model_id = company.log("credit")
    folder = company.artifacts(model_id)
    tree = company.bad.train(DATA.X, DATA.y, seed=1)
    (folder / "other.pkl").write_bytes(pickle.dumps(tree))
    content = yaml.safe_load((folder / "MLmodel").read_text())
    key = {"python_function": "model_path", "sklearn": "pickled_model"}[declared]
    content["flavors"][declared][key] = "other.pkl"
    content["flavors"]["sklearn"]["serialization_format"] = "pickle"
    (folder / "MLmodel").write_text(yaml.safe_dump(content))
    recorded = folder / "privgate" / "recipe.json"  # names the files as they are now, as any client can write it
    document, files = json.loads(recorded.read_text()), model_files(folder)
    document.pop("digest")
    document["model"] = {"files": files, "digest": digest.of_manifest(files)}
    recorded.write_text(json.dumps({**document, "digest": digest.of_json(document)}))
    assert company.release("credit") == "check exits with 4"
    assert company.served("models:/credit@production") is None


# 8: databases that take different names for equal


@pytest.mark.parametrize(
    "inner", ["mysql+pymysql://u:p@127.0.0.1/db", "mssql+pyodbc://u:p@127.0.0.1/db", "mariadb://h/d"]
)
def test_a_database_that_may_take_names_for_equal_is_refused_at_start(site, monkeypatch, inner):
    monkeypatch.setenv("PRIVGATE_GUARD", str(site.config))
    with pytest.raises(PolicyError, match="supported are SQLite and PostgreSQL") as caught:
        guarded_store(f"privgate:{inner}")
    assert "u:p" not in str(caught.value)


@pytest.mark.attack("8 a collation that takes names for equal", "server start", "refused")
def test_a_collation_that_takes_names_for_equal_is_refused_at_start(site, monkeypatch, empty_database, tmp_path):
    monkeypatch.setenv("PRIVGATE_GUARD", str(site.config))
    path = tmp_path / "own.db"
    shutil.copy(empty_database, path)
    with sqlite3.connect(path) as own:
        (sql,) = own.execute("SELECT sql FROM sqlite_master WHERE name = 'registered_model_aliases'").fetchone()
        own.execute("DROP TABLE registered_model_aliases")
        own.execute(sql.replace("alias VARCHAR(256)", "alias VARCHAR(256) COLLATE NOCASE"))
    with pytest.raises(PolicyError, match="takes different names for equal"):
        guarded_store(f"privgate:sqlite:///{path}")


# 11: renaming races a promotion


@pytest.mark.attack("11 renaming races a promotion", "registry, doctor", "refused")
@pytest.mark.parametrize("rounds", [2, pytest.param(80, marks=pytest.mark.slow)])
def test_no_rename_carries_a_promotion_to_another_name(company, rounds):
    """Rounds of both at once: whoever holds the alias afterwards, its statement is about that very name."""
    registry, client, carried = company.registry, company.client, []
    for number in range(rounds):
        name, other = f"old-{number}", f"new-{number}"
        version = registry.log(name)
        registry.release(name, version)
        ready = threading.Barrier(2)

        def call(function, *arguments, ready=ready):
            ready.wait()
            with contextlib.suppress(MlflowException):  # one of both must lose
                function(*arguments)

        calls = (
            (client.set_registered_model_alias, name, "production", version),
            (client.rename_registered_model, name, other),
        )
        threads = [threading.Thread(target=call, args=arguments) for arguments in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for held in client.search_registered_models(f"name='{other}'"):
            carried += [a for a in held.aliases if a == "production"]
    assert carried == []
    assert company.wrong() == []


# wanted 6: what a released version rests on


def test_statements_of_version_1_are_refused_and_the_doctor_lists_them(company):
    registry, client, past = company.registry, company.client, company.past()
    version = registry.log("credit")
    said = registry.claims("credit", version).summary("test")
    said["predicate"]["urn:privgate:verdict:v1"] = said["predicate"].pop(statement.EXTENSION)
    text = seal(said, registry.site.signer).text()
    with pytest.raises(MlflowException, match="is of version 1, which does not name every served file"):
        client.set_model_version_tag("credit", version, TAG, text)
    past.set_model_version_tag("credit", version, TAG, text)
    with pytest.raises(MlflowException, match="is of version 1"):
        client.set_registered_model_alias("credit", "production", version)
    past.set_registered_model_alias("credit", "production", version)
    (wrong,) = company.wrong()
    assert "models:/credit/1 as 'production'" in wrong
    assert "is of version 1" in wrong
    registry.release("credit", version)  # signed again, it counts
    assert company.wrong() == []
    assert company.verify("credit") == 0


def test_reports_in_the_served_folder_are_refused(company, tmp_path):
    model_id = company.log("credit")
    with pytest.raises(SubjectError, match="no report is attached"):
        attached("models:/credit/1", tracking_uri=company.address)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "report.json").write_text("{}")
    company.client.log_model_artifacts(model_id, str(tmp_path / "old"), "privgate/reports/dtp-1")
    with pytest.raises(SubjectError, match="lie in the served folder, where an earlier privgate kept them"):
        attached("models:/credit/1", tracking_uri=company.address)
