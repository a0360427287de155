"""The first look at a file: records are found or the file is unknown, and nothing of it is run."""

import base64
import bz2
import copy
import gzip
import io
import json
import marshal
import os
import pickle
import re
import sys
import time
import types
import zipfile
import zlib

import cloudpickle
import joblib
import lightgbm
import numpy as np
import pandas as pd
import pytest
import skops.io
import torch
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, QuantileTransformer, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeRegressor

from privgate.evidence import Measurement
from privgate.evidence.verdict import Outcome
from privgate.file import look, readers
from privgate.policy.rules.file_records import FileRecords
from privgate.registry.files import OLD_REPORTS, REPORTS

RNG = np.random.default_rng(0)
TABLES = {
    "normal": RNG.normal(size=(300, 7)),
    "codes": RNG.integers(0, 12, size=(400, 12)).astype(np.float64),
    "mixed": np.column_stack([RNG.integers(0, 2, size=(400, 8)), RNG.normal(size=(400, 3))]),
    "cancer": load_breast_cancer().data,
}


def seen(content, X):
    """Return records found, where, and what may hold others."""
    return tell(readers.read_files([("model.pkl", content)]), X)


def tell(contents, X):
    sight = look.find_records(contents, X)
    return sight.least, sight.kept, [*sight.may_hold, *sight.unknown]


DONE = {
    "as they are": lambda X: X,
    "half": lambda X: X.astype(np.float16),
    "a third": lambda X: RNG.permutation(X)[: len(X) // 3],
    "turned": lambda X: X.T.copy(),
    "standardised, half": lambda X: ((X - X.mean(0)) / X.std(0)).astype(np.float16),
    "scaled, permuted": lambda X: RNG.permutation(X * 3.7 - np.arange(X.shape[1])),
    "one after another": lambda X: X.ravel(),
    "with labels": lambda X: np.column_stack([X, np.arange(len(X)) % 2]),
}


def archive(**members):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return made.getvalue()


def saved(write):
    made = io.BytesIO()
    write(made)
    return made.getvalue()


def npy(A):
    return saved(lambda f: np.save(f, A))


WRITTEN = {
    "pickle 2": lambda A: pickle.dumps({"t": A}, protocol=2),
    "pickle": lambda A: pickle.dumps({"t": A}),
    "joblib, packed": lambda A: saved(lambda f: joblib.dump({"t": A}, f, compress=3)),
    "a closure": lambda A: cloudpickle.dumps(lambda q: A - q),
    "behind a pickle": lambda A: pickle.dumps({"a": 1}) + b"\0" + A.tobytes(),
    "json": lambda A: json.dumps(A.astype(float).tolist()).encode(),
    "csv": lambda A: "\n".join(",".join(f"{v:g}" for v in np.atleast_1d(r)) for r in A).encode(),
    "npz": lambda A: saved(lambda f: np.savez_compressed(f, A)),
    "bz2 in zip": lambda A: archive(inner=bz2.compress(pickle.dumps(A))),
}


@settings(max_examples=40)
@given(st.sampled_from(sorted(TABLES)), st.sampled_from(sorted(DONE)), st.sampled_from(sorted(WRITTEN)))
def test_records_are_found_or_the_file_is_unknown(table, done, written):
    X = TABLES[table]
    least, _, unknown = seen(WRITTEN[written](DONE[done](X)), X)
    assert least or unknown


# Ways in which nobody stores a model, and somebody might store records: found by an attack, all of them unseen before.

KEPT = RNG.normal(size=(300, 6))
FRAME = pd.DataFrame(KEPT, columns=list("abcdef"))
WAYS = {
    "protocol 0": pickle.dumps(KEPT, protocol=0),
    "a frame": pickle.dumps(FRAME),
    "a mapping of columns": pickle.dumps(FRAME.to_dict("list")),
    "a list of rows": pickle.dumps(list(KEPT)),
    "base 16": KEPT.tobytes().hex().encode(),
    "skops": skops.io.dumps({"kept": KEPT}),
    "numpy's scalars": pickle.dumps([[np.float32(v) for v in r] for r in KEPT]),
    "base 64 in JSON": json.dumps({"d": base64.b64encode(KEPT.tobytes()).decode()}).encode(),
    "complex numbers": pickle.dumps(KEPT[:, :3] + 1j * KEPT[:, 3:]),
    "printed": pickle.dumps({"d": repr(KEPT.tolist())}),
    "the other byte order": pickle.dumps(KEPT.astype(">f8")),
    "in two streams of zlib": zlib.compress(b"a") + zlib.compress(pickle.dumps(KEPT)),
}


def keep_in_code(constant):
    """Return a function, pickled by value, one of whose constants is given."""
    code = (lambda: b"kept").__code__
    constants = tuple(constant if c == b"kept" else c for c in code.co_consts)
    return cloudpickle.dumps(types.FunctionType(code.replace(co_consts=constants), {"__name__": "__main__"}))


WAYS["a constant of a function"] = keep_in_code(KEPT.tobytes())
#: bytes that are no numbers
SWAPPED = bytes(b ^ 85 for b in KEPT.tobytes())
WHOLE = RNG.integers(0, 1 << 20, size=(200, 5))
SPARSE, EIGHTY = sparse.random(300, 400, density=0.1, random_state=1, format="csr"), RNG.normal(size=(300, 80))


HEAD = json.dumps({"0": {"dtype": "F64", "shape": [3], "data_offsets": [0, 24]}}).encode()
#: name -> content, and the records where they are others
UNKNOWN = {
    "printed with four digits, row by row": pickle.dumps([",".join(f"{v:.4f}" for v in r) for r in KEPT]),
    "marshal": marshal.dumps(KEPT.tolist()),
    "whole thousandths": pickle.dumps((KEPT * 1000).round().astype(int)),
    "UTF-16": FRAME.to_csv().encode("utf-16"),
    "behind a stream of bz2": bz2.compress(b"a") + SWAPPED,
    "behind all tensors": len(HEAD).to_bytes(8, "little") + HEAD + bytes(24) + SWAPPED,
    "bytes of each record": pickle.dumps([r.tobytes() for r in KEPT]),
    "a small file of each record": archive(**{f"r{k}": r.tobytes() for k, r in enumerate(KEPT)}),
    "a text of each number": pickle.dumps([[str(v) for v in r] for r in KEPT.tolist()]),
    "texts of whole numbers": (pickle.dumps([str(v) for v in WHOLE.ravel()]), WHOLE.astype(float)),
    "sparse, columns first": (pickle.dumps(SPARSE.tocsc()), SPARSE),
    "sparse, half, changed": (pickle.dumps(SPARSE[:150].log1p()), SPARSE),
    "bfloat16 as a buffer": pickle.dumps({"w": torch.tensor(KEPT, dtype=torch.bfloat16)}),
    "half, scaled by itself, torch": saved(
        lambda f: torch.save(torch.tensor(StandardScaler().fit_transform(KEPT[:150])), f)
    ),
    "half, decimal commas": FRAME[:150].to_csv(sep=";", decimal=",").encode(),
    "half, YAML": "".join(
        f"- a: {r[0]}\n  new: {r[0] ** 3}\n" + "".join(f"  c: {v}\n" for v in r[1:]) for r in KEPT[:150]
    ).encode(),
    "half of one column": (pickle.dumps(dict.fromkeys(EIGHTY[:150, 3].tolist(), 1)), EIGHTY),
    "a large constant of a function": keep_in_code(KEPT.tobytes() + bytes(1 << 22)),
    "among other rows": npy(np.concatenate([KEPT, RNG.normal(size=(350, 6))])),
    "among many other rows": pickle.dumps(np.concatenate([KEPT[:20], RNG.normal(size=(9000, 6))])),
}


@pytest.mark.parametrize("way", [*WAYS, *UNKNOWN])
def test_records_are_found_however_they_were_kept_or_never_taken_for_nothing(way):
    content = {**WAYS, **UNKNOWN}[way]
    content, records = content if isinstance(content, tuple) else (content, KEPT)
    least, _, unknown = seen(content, records)
    assert least == 300 if way in WAYS else least or unknown


def test_one_record_that_is_no_whole_number_hides_no_others_and_sparse_ones_are_found():
    records = WHOLE + 0.5 * (np.arange(1000).reshape(200, 5) == 37)
    assert seen(npy(records.astype(np.int64)), records)[0] == 199

    assert seen(pickle.dumps({"kept": SPARSE}), SPARSE)[0] >= 290
    # a file is not what it is called
    assert all(
        look.find_records(readers.read_files([(name, SWAPPED)]), KEPT).unread for name in ("xgboost.bin", "x_type")
    )


CANCER = load_breast_cancer(return_X_y=True)
CODES = RNG.integers(0, 40, size=(400, 6)).astype(str).astype(object)
CODED = (CODES, RNG.random(400) > 0.5)


@pytest.mark.parametrize(
    ("made", "data", "write"),
    [
        (KNeighborsClassifier(algorithm="brute"), CANCER, pickle.dumps),
        # a learned first step makes the records sparse, so that nothing of them stands in the file as it was
        (make_pipeline(OneHotEncoder(), KNeighborsClassifier()), CODED, pickle.dumps),
        (make_pipeline(OneHotEncoder(), SVC(C=0.1)), CODED, skops.io.dumps),
    ],
    ids=["neighbours", "neighbours behind codes", "vectors behind codes"],
)
def test_models_that_are_their_data_are_found_and_named(made, data, write):
    least, kept, _ = seen(write(made.fit(*data)), data[0])
    assert least > 20
    assert any("keeps its training records" in k for k in kept)


def test_people_in_an_example_are_named_by_its_file_alone():
    X, name = TABLES["normal"], "input_example.json"
    table = json.dumps({"columns": list("abcdefg"), "data": X[:5].tolist()}).encode()
    read = readers.read_files([("MLmodel", b"size: 12345, 1.5, 7\n"), (name, table)])
    assert tell(read, X)[:2] == (5, [f"file {name}"])


def test_what_a_fitted_sampler_keeps_is_named_by_it(monkeypatch):
    home = "imblearn.over_sampling"
    sampler = type("SMOTE", (), {"__module__": home})
    for name in ("imblearn", home):
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(SMOTE=sampler))
    made, X = sampler(), TABLES["normal"]
    made.nn_k_ = NearestNeighbors().fit(X)
    _, kept, _ = seen(pickle.dumps(made), X)
    assert "it keeps its training records: NearestNeighbors, in the fitted sampler SMOTE" in kept


_KEEPS = "it keeps its training records: "


@pytest.mark.parametrize(
    ("where", "wanted", "not_said"),
    [
        (f"{_KEEPS}NearestNeighbors, in the fitted sampler SMOTE", "without its", "keeps no records"),
        (f"{_KEEPS}SVC", "keeps no records", "sampler"),
        ("file code/people.csv", "without that file among its code_paths", "keeps no records"),
    ],
)
def test_the_step_takes_out_what_was_found(where, wanted, not_said):
    rule = FileRecords(metric="file_records", max=0)
    step = rule.advice(Measurement(rule.request(), 5, 5, 5, where=where), Outcome.FAILED)
    assert wanted in step
    assert not_said not in step


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "made",
    [
        make_pipeline(QuantileTransformer(n_quantiles=100), LogisticRegression()),
        RandomForestClassifier(20, random_state=0),
        HistGradientBoostingClassifier(max_iter=5, random_state=0),
        MLPClassifier((30,), max_iter=20, random_state=0),
    ],
    ids=repr,
)
def test_ordinary_models_hold_no_record_and_are_read_whole(made):
    for X, y in (CANCER, (load_diabetes().data, load_diabetes().target > 140)):
        assert seen(pickle.dumps(made.fit(X, y)), X) == (0, [], [])


class Harmful:
    def __reduce__(self):
        return os.system, ("touch harmed",)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_nothing_of_a_file_is_run(protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen(pickle.dumps({"a": Harmful(), "b": [Harmful()]}, protocol=protocol), TABLES["normal"])
    assert not list(tmp_path.iterdir())


def _field(number, content):
    """Return a field of a message of protobuf: a number, or bytes with their length."""
    plain = isinstance(content, int)
    size = content if plain else len(content)
    length = bytes([size >> 7 * k & 127 | 128 for k in range(4)]) + bytes([size >> 28])
    return bytes([number << 3 | (0 if plain else 2)]) + length + (b"" if plain else content)


def onnx(tensors):
    """Return a model of ONNX with these initialisers."""
    made = b""
    for a in tensors:
        shape = b"".join(_field(1, d) for d in a.shape)
        made += _field(5, shape + _field(2, 1 if a.itemsize == 4 else 11) + _field(9, a.tobytes()))
    return _field(1, 8) + _field(7, _field(2, b"graph") + made)


def bomb(depth):
    data = bytes(1 << 20)
    for _ in range(depth):
        data = gzip.compress(data)
    return data


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(TABLES["normal"])[:-200],
        b"\x80\x04" + b"]" * 100_000,
        b"\x80\x04\x8e" + (1 << 60).to_bytes(8, "little") + b"abc",
        bomb(9),
        b"PK\x03\x04" + bytes(200),
        b"\x93NUMPY\x01\x00" + b"\xff" * 300,
        (1 << 20).to_bytes(8, "little") + b"{" + b"[" * (1 << 20),
        os.urandom(100_000),
        onnx([RNG.normal(size=(600, 1000)).astype(np.float32)]),
    ],
    ids=["cut", "open lists", "long", "bomb", "zip", "npy", "safetensors", "noise", "a network in ONNX"],
)
def test_a_hostile_file_is_unknown_and_soon(content):
    started = time.process_time()
    least, _, unknown = seen(content, TABLES["normal"])
    assert unknown
    assert not least
    assert time.process_time() - started < 5


def test_the_file_of_a_whole_release_leaves_our_reports_out(tmp_path):
    assert (f"{REPORTS}/", OLD_REPORTS) == look._REPORTS
    for name in ("model.pkl", f"{REPORTS}/a/report.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    assert [n for n, _ in look.list_files(tmp_path)] == ["model.pkl"]


MANY_RECORDS = RNG.normal(size=(3000, 12))
FOREST = RandomForestClassifier(30, random_state=0).fit(MANY_RECORDS, MANY_RECORDS[:, 0] > 0)


def beside_trees(A):
    made = copy.copy(FOREST)
    made.kept_ = A
    return made


FORMS = {
    "as they are": lambda X: X,
    "between 0 and 1, single": lambda X: ((X - X.min(axis=0)) / np.ptp(X, axis=0)).astype(np.float32),
}
HIDDEN = {
    "beside trees, pickled": lambda A: pickle.dumps(beside_trees(RNG.permutation(A))),
    "beside trees, turned": lambda A: pickle.dumps(beside_trees(A.T.copy())),
    "beside weights, torch": lambda A: saved(lambda f: torch.save({"w": torch.tensor(A)}, f)),
    "beside weights, ONNX": lambda A: onnx([RNG.normal(size=(100, 1000)).astype(A.dtype), A]),
    "behind CatBoost's trees": lambda A: b"CBM1" + RNG.bytes(10_001) + A.tobytes(),
}


@pytest.mark.quick(6)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("hidden", HIDDEN)
def test_records_in_a_model_are_found_in_every_form(hidden, form):
    A = FORMS[form](MANY_RECORDS)[:1000]
    least, _, unknown = seen(HIDDEN[hidden](A), MANY_RECORDS)
    assert least >= 990
    assert not [u for u in unknown if "time was over" in u]


@pytest.mark.quick(2)
@pytest.mark.parametrize("write", [pickle.dumps, skops.io.dumps, lambda m: saved(lambda f: joblib.dump(m, f))])
def test_a_forest_holds_nothing_however_it_is_written(write):
    codes = TABLES["codes"]  # small whole numbers of trees against those of records: what chance meets
    assert seen(write(IsolationForest(n_estimators=20, random_state=0).fit(codes)), codes)[0] == 0
    assert seen(write(FOREST), MANY_RECORDS) == (0, [], [])
    X = RNG.normal(size=(300, 5))
    large = RandomForestClassifier(60, min_samples_leaf=60).fit(X, X[:, 0] > 0)
    assert seen(write(large), X) == (0, [], []), "the library's version stands at every tree"


LETTERS = [
    f"Dear {n}, {k} letters came about case {k * 7919} of the {n} street" for k, n in enumerate(["Ann", "Bo"] * 60)
]
CORPORA = {
    "joined by newlines": pickle.dumps({"corpus": "\n".join(LETTERS)}),
    "in upper case": pickle.dumps([v.upper() for v in LETTERS]),
    "token lists": pickle.dumps([v.split() for v in LETTERS]),
    "prompts": json.dumps({"prompt": "".join(f"Text: {v}\nLabel: 1\n\n" for v in LETTERS)}).encode(),
    "packed": pickle.dumps(zlib.compress("\n".join(LETTERS).encode())),
    "keys of a mapping": pickle.dumps(dict.fromkeys(LETTERS, 1)),
    "skops": skops.io.dumps({"corpus": LETTERS}),
    "a frame": pickle.dumps(pd.DataFrame({"text": LETTERS})),
    "a part, word for word": pickle.dumps({"corpus": LETTERS[:20]}),
}


@pytest.mark.parametrize("records", [LETTERS, pd.DataFrame({"text": LETTERS, "age": range(120)}), np.array(LETTERS)])
@pytest.mark.parametrize("way", CORPORA)
def test_texts_are_found_whatever_holds_them(way, records):
    assert seen(CORPORA[way], records)[0] == (20 if "part" in way else 120)


PEOPLE = pd.DataFrame(
    {"mail": [f"p{k * 7919 % 10**6}@example.org" for k in range(300)], "city": ["Rome", "Bonn"] * 150}
)
PEOPLE[["age", "paid", "owed"]] = np.random.default_rng(5).normal(50, 9, (300, 3)).round(3)
WIDE = PEOPLE.assign(target=1)[["paid", "target", "city", "owed", "age", "mail"]]
FORMATS = {
    "csv": WIDE.to_csv(sep=";").encode(),
    "json": WIDE.to_json(orient="records").encode(),
    "json lines": WIDE.to_json(orient="records", lines=True).encode(),
    "dictionaries": pickle.dumps(WIDE.to_dict("records")),
    "parquet of texts": saved(WIDE.astype(str).to_parquet),
    "parquet of lists": saved(pd.DataFrame({"row": list(WIDE[["paid", "age", "owed"]].to_numpy())}).to_parquet),
    "categories": pickle.dumps(OneHotEncoder(handle_unknown="ignore").fit(PEOPLE[["mail"]])),
}


@pytest.mark.parametrize("columns", [["age", "paid", "owed"], ["mail", "city"]])
@pytest.mark.parametrize("form", FORMATS)
def test_a_table_is_found_with_other_columns_beside_and_in_another_order(form, columns):
    if (form, columns[0]) not in (("categories", "age"), ("parquet of lists", "mail")):
        assert seen(FORMATS[form], PEOPLE[columns])[0] == 300


def test_a_vocabulary_and_a_rare_category_with_a_long_name_are_no_text_of_anybody():
    words = {"vocabulary": dict.fromkeys(" ".join(LETTERS).split(), 1)}
    assert seen(pickle.dumps(words), LETTERS) == (0, [], [])
    table = pd.DataFrame({"status": ["married", "single", None] * 99 + ["married, spouse absent"] * 2})
    for kept in (OneHotEncoder(handle_unknown="ignore").fit(table), table["status"].value_counts()):
        assert seen(pickle.dumps(kept), table) == (0, [], [])


def test_letters_that_nobody_can_read_are_unread():
    written = base64.b85encode(zlib.compress("\n".join(LETTERS).encode())).decode()
    sight = look.find_records(readers.read_files([("m", pickle.dumps({"d": written}))]), LETTERS)
    assert (sight.least, sight.unread, len(sight.may_hold)) == (0, len(written), 1)


MADE = np.column_stack([KEPT @ RNG.normal(size=(6, 6)), KEPT[:, 0] > 0])
ONE_ROW = "an array with one row a record (file model.pkl.codes)"
MEANING = "numbers whose meaning is not known (file model.pkl.codes)"
SHAPES = {
    "codes that invert to records": (np.tanh(MADE), ONE_ROW),
    "sorted columns": (np.sort(KEPT**3, axis=0), ONE_ROW),
    "a rotated copy": (MADE[:, :6], ONE_ROW),
    "one code a record": (np.unique(KEPT[:, 0].round(2), return_inverse=True)[1], ONE_ROW),
    # as a model keeps them that was trained on an inner split
    **{f"codes of {k}": (np.tanh(MADE[:k]), f"{7 * k} {MEANING}") for k in (299, 240, 60)},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_an_array_with_one_row_a_record_or_of_a_part_of_them_may_hold_them(shape):
    codes, said = SHAPES[shape]
    assert seen(pickle.dumps({"model": Ridge().fit(KEPT, KEPT[:, 0]), "codes": codes}), KEPT) == (0, [], [said])


X_41 = RNG.normal(size=(41, 41))
WORDS = [" ".join(f"w{k}" for k in row) for row in (RNG.integers(0, 41, size=(41, 90)))]
KNOWN = [
    DecisionTreeRegressor(max_leaf_nodes=21),
    HistGradientBoostingClassifier(max_iter=40, early_stopping=True, n_iter_no_change=99, min_samples_leaf=2),
    GradientBoostingClassifier(n_estimators=41, subsample=0.5, random_state=1),
    LogisticRegression(),
    LinearSVC(),
    GaussianNB(),
    MLPClassifier((41,), max_iter=9, random_state=1),
    StandardScaler(),
    PCA(2),
    KMeans(2, n_init=1, random_state=1),
    xgboost.XGBClassifier(n_estimators=41),
]


@pytest.mark.parametrize("made", [*KNOWN, TfidfVectorizer(token_pattern=r"w\d+")], ids=lambda m: type(m).__name__)
def test_what_the_gate_knows_of_a_type_is_no_record(made, monkeypatch):
    """Each has an array with as many entries as there are records, by chance or because each has a cluster."""
    X = WORDS if isinstance(made, TfidfVectorizer) else X_41
    content = pickle.dumps(made.fit(X, np.arange(41) if isinstance(made, DecisionTreeRegressor) else np.arange(41) % 2))
    assert seen(content, X)[2] == []
    if isinstance(made, StandardScaler):
        assert seen(skops.io.dumps(made), X)[2] == []
    if not isinstance(made, xgboost.XGBClassifier):  # whose numbers stand in its bytes
        monkeypatch.setattr(look, "_NO_RECORDS", re.compile("(?!)"))
        assert "an array with one row a record" in seen(content, X)[2][0]


NETWORK = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
READ_WHOLE = {
    "skops": lambda: skops.io.dumps(make_pipeline(StandardScaler(), LogisticRegression()).fit(KEPT, KEPT[:, 0] > 0)),
    "scikit-learn": lambda: pickle.dumps(RandomForestClassifier(20).fit(KEPT, KEPT[:, 0] > 0)),
    "XGBoost": lambda: pickle.dumps(xgboost.XGBClassifier(n_estimators=30).fit(KEPT, KEPT[:, 0] > 0)),
    "LightGBM": lambda: pickle.dumps(lightgbm.LGBMClassifier(n_estimators=30, verbose=-1).fit(KEPT, KEPT[:, 0] > 0)),
    "torch": lambda: saved(lambda f: torch.save(NETWORK, f)),
    "torch in a pickle": lambda: pickle.dumps(NETWORK),
}


@pytest.mark.parametrize("library", READ_WHOLE)
def test_every_byte_of_these_formats_is_read(library):
    contents = readers.read_files([("model", READ_WHOLE[library]())])
    sight = look.find_records(contents, KEPT)
    assert contents.size
    assert (sight.unread, sight.may_hold, sight.unknown) == (0, [], [])
