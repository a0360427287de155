"""What people get wrong: every answer is one clear sentence with the right exit code, before anything is trained."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.naive_bayes import CategoricalNB

from privgate import Domain, Policy, Recipe, Subject, TrainingData, evaluate, log_model, registry
from privgate.__main__ import run
from privgate.cli import LONG
from privgate.errors import PrivgateError

HEAD = 'schema: privgate/policy/v1\nname: x\nversion: "1"\n'
FILES = {
    "metric.yaml": HEAD + "rules:\n  - metric: dtpp\n    max: 1\n",
    "word.yaml": HEAD + "rules:\n  - metric: dtp\n    max: one\n",
    "other.json": "{}",
}
ONE = "models:/credit/1"
#: command line, exit code, what the sentence must say
WRONG = (
    ("chek {one}", 2, "did you mean 'check'"),
    ("check", 2, "Missing argument 'URI'"),
    ("check models:/credti/1", 4, "credti"),  # release-1 is the default
    ("check {one} {one} --policy dtp-1", 2, "unexpected extra argument"),
    ("check {one} --policy dpt-1", 2, "did you mean 'dtp-1'"),
    ("check {one} --policy nothere.yaml", 2, "no such file"),
    ("check {one} --policy metric.yaml", 2, "did you mean 'dtp'"),
    ("check {one} --policy word.yaml", 2, "expected a number, without quotes"),
    ("check {one} --policy dtp-1 --reportdir out", 2, "--report-dir"),
    ("check {one} --policy dtp-1 --report-dir other.json", 2, "is a file"),
    ("check {one} --policy dtp-1 --seeds many", 2, "'many' is not a valid integer"),
    ("dp bounds --deletions --epsilon 1 --delta 0 --adjacency replace_one", 2, "it needs --adjacency add_remove"),
    ("dp bounds --max-accuracy .6 --fpr .1", 2, "--fpr says nothing about a goal"),
    ("guard revoke 7cf6 --trust trust.json", 4, "trust.json"),
    ("check {one} --policy dtp-1 --budget 0trainings", 2, "write 90s, 30m or 2h"),
    ("check {one} --policy dtp-1 --jobs 0", 2, "x>=1"),
    ("check {one} --policy dtp-1 --format xml", 2, "'junit'"),
    ("check credit --policy dtp-1", 4, "models:/name/version"),
    ("check models:/credit/latest --policy dtp-1", 4, "moving target"),
    ("check models:/credit/99 --policy dtp-1", 4, "99"),
    ("check models:/credit@prod --policy dtp-1", 4, "alias prod"),
    ("check {one} --policy dtp-1 --tracking-uri http://127.0.0.1:9", 4, "http://127.0.0.1:9 does not answer"),
    ("check {one} --policy dtp-1 --tracking-uri sqlite:///typo.db", 4, "there is no registry at"),
    ("promote {one} --policy dtp-1", 2, "Missing option '--to'"),
    ("promote {one} --policy dtp-1 --to prod!", 2, "is no alias"),
    ("promote {model} --policy dtp-1 --to production", 2, "only versions have aliases"),
    ("report nothere.json --html x.html", 4, "nothere.json"),
    ("report other.json --html x.html", 4, "not a report of privgate"),
    ("report other.json", 2, "say what to write"),
    ("report --compare other.json", 2, "name the later report behind the earlier one"),
    ("explain dtpp", 2, "the nearest names are dtp"),
    ("init --ci jenkins", 2, "'github', 'none'"),
    ("demo --folder other.json", 2, "is a file"),
    ("policy explain metric.yaml", 2, "did you mean 'dtp'"),
    ("verify {one}", 2, "--config"),
    ("guard sign . --policy dtp-1", 2, "--config"),
    ("dp bounds --epsilon x --delta 1e-5", 2, "'x' is not a valid float"),
    ("--verison", 2, "--version"),
)


def people():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(60, 2))
    return TrainingData(
        X, np.where(rng.random(60) < 0.5, "no", "yes"), domain=Domain(categories=(3, 3)), one_record_each=True
    )


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wrong")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    uri = registry.local_registry(folder / "registry")
    recipe = Recipe(CategoricalNB(alpha=5.0, min_categories=[3, 3]), seed=7)
    info = log_model(recipe, people(), registered_model_name="credit", tracking_uri=uri, store="artifacts")
    registry.client.connect(uri).set_registered_model_alias("credit", "staging", "1")
    return folder, uri, f"models:/{info.model_id}"


@pytest.mark.parametrize(("line", "code", "words"), WRONG, ids=lambda v: v if isinstance(v, str) else str(v))
def test_a_mistake_is_answered_in_a_sentence(here, monkeypatch, capfd, line, code, words):
    folder, uri, model = here
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")  # as the installed command sets it
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    before = {p: p.stat().st_mtime_ns for p in Path().iterdir() if p.is_file()}

    ended = run(line.format(one=ONE, model=model).split())

    told = capfd.readouterr()
    passed = ("Usage:", "Try ", "note: reading ", *(f"{name}: reading " for name in LONG))
    said = [s for s in told.err.splitlines() if s and not s.startswith(passed)]
    assert ended == code, told.err
    assert words in told.err
    assert len(said) == 1
    assert said[0].lower().startswith("error: ")
    assert len(said[0]) < 420
    assert "Traceback" not in told.err
    assert told.out == ""
    assert before == {p: p.stat().st_mtime_ns for p in Path().iterdir() if p.is_file()}


X, Y = np.zeros((4, 1)), np.array([0, 1, 0, 1])
NB = CategoricalNB()
#: what is written in Python, and what the sentence must say
WRONG_PYTHON = (
    (lambda: TrainingData(X, Y, ids=["a", "a", "b", "c"], one_record_each=True), "ids"),
    (lambda: TrainingData(X, Y, candidates=X, one_record_each=True), "candidates"),
    (lambda: Recipe(NB, seed="seven"), "seed"),
    (lambda: Recipe(NB, params={"alhpa": 1}), "'alhpa'"),
    (lambda: Policy.load("dpt-1"), "did you mean 'dtp-1'"),
    (lambda: Policy.load(Path("nothere.yaml")), "nothere.yaml"),
    (lambda: evaluate("dpt-1", Subject.local(Recipe(NB), people())), "did you mean 'dtp-1'"),
    (lambda: evaluate("dtp-1", Recipe(NB)), "Subject"),
    (lambda: Domain(categories=()), "at least one category"),
    (lambda: Domain(box=[(1.0, 0.0)]), "low <= high"),
)


@pytest.mark.parametrize(("call", "words"), WRONG_PYTHON, ids=range(len(WRONG_PYTHON)))
def test_a_mistake_in_python_raises_one_sentence(call, words):
    with pytest.raises((PrivgateError, ValueError), match=r"\S") as caught:
        call()

    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
