"""Whatever is uploaded or logged, no value, name or text of a person is in it."""

import base64
import gzip
import json
import zipfile
import zlib

import mlflow
import numpy as np
import pandas as pd
from sklearn.naive_bayes import GaussianNB

import privgate.registry as ours
from privgate import Domain, Fleet, Policy, Recipe, Subject, TrainingData, log_model, report
from privgate.advice.search import evaluate
from privgate.report.document import FORMATS

BOX = [(-1, 1)] * 3
RULES = """schema: privgate/policy/v1
name: p
version: '1'
rules:
  - {metric: dtp, max: 2.0}
  - {metric: pdtp, id: own, max: 2.0}
  - {metric: dtp, id: share, aggregate: share_above, threshold: 0.01, max: 0.9, sample: 30}
"""


def people(n=40):
    rng = np.random.default_rng(5)
    X = pd.DataFrame(rng.uniform(-1, 1, (n, 3)), columns=["a", "b", "c"])
    target = np.where(X["a"] + 0.3 * rng.normal(size=n) > 0, "granted", "refused")
    names = np.array([f"Kunigunde-{k:03d}" for k in range(n)])
    return TrainingData(X, target, ids=names, domain=Domain(box=BOX), one_record_each=True)


def texts(data):
    """Names, and numbers as far as somebody would still recognise them: six digits, which others share by accident."""
    return [b"Kunigunde", *(f"{abs(v):.9f}"[:8].encode() for v in data.X.to_numpy().ravel()[::5].tolist())]


def raw(data):
    """Every record's bytes in both precisions, and within base64 wherever it begins."""
    X = np.ascontiguousarray(data.X.to_numpy())
    for row in [*X, *np.ascontiguousarray(X.T)[:, :4]]:
        for told in (row.astype("<f8").tobytes(), row.astype("<f4").tobytes()):
            yield told
            yield from (base64.b64encode(b"\0" * k + told)[4:-4] for k in range(3))


def opened(content):
    """Yield bytes, and what they hold if they are an archive or compressed."""
    yield content
    for unpack in (gzip.decompress, zlib.decompress):
        try:
            yield unpack(content)
        except (OSError, zlib.error, EOFError):
            continue


def inside(place):
    if zipfile.is_zipfile(place):
        with zipfile.ZipFile(place) as archive:
            for name in archive.namelist():
                yield from opened(archive.read(name))
    yield from opened(place.read_bytes())


def test_nothing_that_is_uploaded_tells_who_was_in_the_data(registry, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    data = people()
    (tmp_path / "p.yaml").write_text(RULES)
    log_model(Recipe(GaussianNB(var_smoothing=1.0)), data, registered_model_name="credit", store=tmp_path / "elsewhere")
    asked = Subject.load("models:/credit/1")
    policy = Policy.load(tmp_path / "p.yaml")
    with Fleet(ledger="none", jobs=1) as fleet:
        verdict = evaluate(policy, asked, fleet=fleet)
    assert verdict.evidence.cases, verdict.outcome
    report.write(verdict, tmp_path / "out", hash_key=b"k" * 32)
    ours.attach(asked, tmp_path / "out", verdict)
    settings = {"policy": str(tmp_path / "p.yaml"), "uri": "models:/credit/1", "jobs": 1, "ledger": "none"}
    with mlflow.start_run():
        mlflow.models.evaluate(
            "models:/credit/1", data.X.assign(y=data.y), targets="y", model_type="classifier", evaluators="privgate",
            evaluator_config=settings,
        )  # fmt: skip
    document = json.loads((tmp_path / "out" / "report.json").read_text())
    for name, (_, file) in FORMATS.items():
        (tmp_path / "artifacts" / f"rendered-{file or name}").write_text(report.render(document, name))

    uploaded = [tmp_path / "registry.db", *(p for p in (tmp_path / "artifacts").rglob("*") if p.is_file())]
    assert {"report.json", "report.html", "summary.md", "junit.xml"} <= {p.name for p in uploaded}
    assert not {"records.parquet", "cases.npz"} & {p.name for p in uploaded}
    sought = [*texts(data), *raw(data)]
    here = b"".join(p.read_bytes() for p in (tmp_path / "out").glob("cases.npz"))
    assert any(form in here for form in sought)  # whoever looked into the cases would find them
    for place in sorted(uploaded):
        for content in inside(place):
            assert not [form for form in sought if form in content], place
