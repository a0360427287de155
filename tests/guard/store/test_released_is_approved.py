"""Nothing else is released than what was approved: each attack from check to what a consumer's load really returns."""

import json
import pickle
import shutil
import sqlite3

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
from privgate.guard.store import guarded_store
from privgate.registry import attached
from privgate.registry.files import model_files
from privgate.registry.named import TAG
from privgate.training.isolation import choose_isolation as isolation_of
from tests.guard.store.conftest import DATA, GOOD, HIDING

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
        return run(["guard", "sign", str(out), *self.signing, *more, "--tracking-uri", self.address])

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
    assert company.release("credit", alias="staging") == "released"
    (out,) = tmp_path.glob("out-*")
    for target in ("*@production", "prod.*@production", "credit@prod*", "credit@productıon", "a#@production"):
        assert company.sign(out, "--target", target) == 4, target  # it signs names alone
    assert company.sign(out, "--checked-elsewhere") == 0
    company.client.set_registered_model_alias("credit", "production", "1")
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

    # and it signs only the row that was checked
    company.client.delete_registered_model("credit")
    company.log("credit", company.bad)
    assert company.sign(out) == 4


# 1 to 3: a fragment that MLflow does not parse, a name that means another version later, a name that is a pattern


def name_a_fragment(company):
    good = company.log("innocent")
    company.log(f"{good}#", company.bad)
    return f"models:/{good}#/1"


def name_another_version(company):
    company.log("stage", company.bad)
    return "models:/stage/1"


@pytest.mark.slow
@pytest.mark.parametrize("source", [name_a_fragment, name_another_version])
def test_a_source_that_names_another_model_is_refused(company, source):
    named = source(company)
    company.client.create_registered_model("risk")
    company.client.create_model_version("risk", named)
    if source is name_another_version:
        company.client.delete_registered_model("stage")
        company.log("stage")
    assert company.release("risk") != "released"
    assert company.served("models:/risk@production") is None


def test_a_model_named_like_a_pattern_is_not_checked(company):
    for name in ("[c]redit", "credit#"):
        company.registry.log(name)
        assert company.release(name) == "check exits with 4"


# 4: prompts


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


# 5 and 6: files that no digest covered, and another pickle for each flavor


def serve_other_files(folder, tree):
    """Serve what lies beside the covered files."""
    return "python_function", {"data": "../elsewhere"}


def hide_a_library(folder, tree):
    """Bring a package that hides an installed one where the model is served."""
    (folder / "lib/sklearn").mkdir(parents=True)
    (folder / "lib/sklearn/__init__.py").write_text("stolen = True\n")
    return "python_function", {"code": "lib"}


def serve_another_pickle(folder, tree):
    """Keep another pickle for those who ask by the library's own flavor."""
    (folder / "other.pkl").write_bytes(pickle.dumps(tree))
    return "sklearn", {"pickled_model": "other.pkl", "serialization_format": "pickle"}


@pytest.mark.parametrize("change", [serve_other_files, hide_a_library, serve_another_pickle])
def test_what_is_served_is_the_one_model_of_the_covered_files(company, pickles, change):
    """Whoever writes the MLmodel file may write the recipe's list of files, too."""
    model_id = company.log("credit")
    folder = company.artifacts(model_id)
    flavor, served = change(folder, company.bad.train(DATA.X, DATA.y, seed=1))
    content = yaml.safe_load((folder / "MLmodel").read_text())
    content["flavors"][flavor].update(served)
    (folder / "MLmodel").write_text(yaml.safe_dump(content))
    recorded = folder / "privgate" / "recipe.json"
    document, files = json.loads(recorded.read_text()), model_files(folder)
    document.pop("digest")
    document["model"] = {"files": files, "digest": digest.of_manifest(files)}
    recorded.write_text(json.dumps({**document, "digest": digest.of_json(document)}))
    assert company.release("credit") == "check exits with 4"
    assert company.served("models:/credit@production") is None
    shutil.rmtree(folder / "privgate")
    with pytest.raises(SubjectError, match="log"):
        log_recipe(f"models:/{model_id}", GOOD, DATA, tracking_uri=company.address, store="artifacts")


# 8: databases that take different names for equal


@pytest.mark.parametrize(
    "inner", ["mysql+pymysql://u:p@127.0.0.1/db", "mssql+pyodbc://u:p@127.0.0.1/db", "mariadb://h/d"]
)
def test_a_database_that_may_take_names_for_equal_is_refused_at_start(site, monkeypatch, inner):
    monkeypatch.setenv("PRIVGATE_GUARD", str(site.config))
    with pytest.raises(PolicyError, match="supported are SQLite and PostgreSQL") as caught:
        guarded_store(f"privgate:{inner}")
    assert "u:p" not in str(caught.value)


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


def test_reports_in_the_served_folder_are_none(company, tmp_path):
    model_id = company.log("credit")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "report.json").write_text("{}")
    company.client.log_model_artifacts(model_id, str(tmp_path / "old"), "privgate/reports/dtp-1")
    with pytest.raises(SubjectError, match="no report is attached"):
        attached("models:/credit/1", tracking_uri=company.address)
