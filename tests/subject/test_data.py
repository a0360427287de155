"""Training data: containers, units, digests, and what is refused."""

import sys
import types
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from privgate.errors import SubjectError
from privgate.subject import containers
from privgate.subject.data import TrainingData
from privgate.subject.domain import Domain

RNG = np.random.default_rng(3)
X = RNG.normal(size=(12, 3))
Y = np.array(["no", "yes"] * 6)
MANY = np.arange(12)
CONTAINERS = {
    "array": X,
    "image": RNG.normal(size=(12, 2, 2)),
    "frame": pd.DataFrame({"a": X[:, 0], "b": list("abcabcabcabc"), "c": pd.Categorical(list("uvuvuvuvuvuv"))}),
    "sparse": sp.csr_matrix(np.where(X > 0, X, 0)),
    "text": [f"document {i}" for i in range(12)],
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_survives_a_round_trip_through_files_with_the_same_digest(kind, tmp_path):
    data = TrainingData(
        CONTAINERS[kind],
        Y,
        ids=np.arange(12).astype(str),
        groups=np.repeat(np.arange(4), 3),
        candidates=(containers.take(CONTAINERS[kind], np.arange(5)), Y[:5]),
        domain=[(0, 1)] * 3 if kind == "array" else None,
        sensitive=("a",),
    )

    data.save(tmp_path)
    again = TrainingData.load(tmp_path, mmap=True)

    assert again.digest == data.digest
    assert [list(u) for u in again.units] == [list(u) for u in data.units]
    assert again.domain == data.domain
    assert list(again.pool()[1]) == [*Y, *Y[:5]]


@pytest.mark.parametrize("kind", CONTAINERS)
def test_one_changed_value_changes_the_digest(kind):
    value = CONTAINERS[kind]
    changed = list(value) if isinstance(value, list) else value.copy()
    if isinstance(changed, pd.DataFrame):
        changed.iloc[7, 0] = changed.iloc[7, 0] + 1e-12
    elif isinstance(changed, list):
        changed[7] += " "
    else:
        (changed.data if sp.issparse(changed) else changed.reshape(-1))[0] += 1e-12

    before = TrainingData(value, Y).digest
    assert before not in (TrainingData(changed, Y).digest, TrainingData(value, Y[::-1]).digest)


@pytest.mark.parametrize(
    ("X", "y", "about", "words"),
    [
        (X, Y[:-1], {}, "y has shape"),
        (X[:1], Y[:1], {}, "at least 2"),
        (X, np.full(12, np.nan), {}, "NaN"),
        (X, Y, {"ids": ["a"] * 12}, "use groups"),
        (X, Y, {"groups": [1, 2]}, "groups has shape"),
        (X, Y, {"candidates": (X, Y[:3])}, "candidates"),
        (X, Y, {"groups": MANY, "one_record_each": True}, "contradict each other"),
        (X, Y, {"candidates": (X[:2], Y[:2], [1, 2])}, "pass groups="),
        (X, Y, {"groups": MANY, "candidates": (X[:2], Y[:2], Y[:2])}, "groups= of the candidates is of type <U"),
        (X, Y, {"groups": MANY, "candidates": (X[:2], Y[:2], [1])}, "people has shape"),
    ],
)
def test_what_cannot_be_judged_is_refused_in_one_sentence(X, y, about, words):
    with pytest.raises(SubjectError, match=words):
        TrainingData(X, y, **about)


@pytest.mark.parametrize(("records", "words"), [(np.array([{}] * 12, dtype=object), "a dict in"), ([0] * 12, "text")])
def test_refuses_pickled_objects(tmp_path, records, words):
    with pytest.raises(SubjectError, match=words):
        TrainingData(records, Y).save(tmp_path)


def test_a_loader_leaves_the_data_where_it_is(monkeypatch):
    module = types.ModuleType("warehouse_for_test")
    module.made = lambda n: TrainingData(np.arange(n)[:, None], np.arange(n) % 2)
    module.wrong = lambda: 3
    monkeypatch.setitem(sys.modules, "warehouse_for_test", module)

    data = TrainingData.from_loader("warehouse_for_test:made", n=6)

    assert data.n == 6
    assert "warehouse_for_test:made" in data.loader
    with pytest.raises(SubjectError, match="not TrainingData"):
        TrainingData.from_loader("warehouse_for_test:wrong")
    with pytest.raises(SubjectError, match="cannot be imported"):
        TrainingData.from_loader("no_such_module_here:made")


def test_a_domain_is_inferred_only_from_plain_numbers():
    codes = TrainingData(np.array([[0, 2], [1, 0]]), [0, 1])
    assert codes.effective_domain == Domain(categories=(2, 3), inferred=True)
    assert TrainingData(X, Y).effective_domain.box[0] == (X[:, 0].min(), X[:, 0].max())
    for kind in ("text", "sparse"):
        assert TrainingData(CONTAINERS[kind], Y).effective_domain is None


def test_a_domain_that_an_earlier_version_limited_by_length_is_refused_in_words(tmp_path):
    TrainingData(X, Y, domain=[(-9, 9)] * 3).save(tmp_path)
    index = (tmp_path / "data.json").read_text()
    (tmp_path / "data.json").write_text(index.replace('"max_length": null', '"max_length": 3.0'))
    with pytest.raises(SubjectError, match="declare the range of each column"):
        TrainingData.load(tmp_path)


def test_a_domain_may_be_declared_in_short_forms():
    def declared(short):
        return TrainingData(np.zeros((4, 2), dtype=int), [0, 1, 0, 1], domain=short).domain

    assert declared([(0, 1), (2.5, 3)]) == Domain(box=((0.0, 1.0), (2.5, 3.0)))
    for wrong in ([3, 2], {"boxes": 1}, 7, []):
        with pytest.raises(SubjectError, match="domain cannot be used"):
            declared(wrong)
    with pytest.raises(SubjectError, match="3 features"):
        declared(Domain((3, 2, 2)))


@given(st.lists(st.integers(0, 6), min_size=2, max_size=40))
def test_units_are_the_rows_of_each_group_in_order_of_appearance(groups):
    data = TrainingData(np.zeros((len(groups), 1)), np.zeros(len(groups)), groups=groups)
    wanted = [np.flatnonzero(np.array(groups) == g).tolist() for g in dict.fromkeys(groups)]

    assert [rows.tolist() for rows in data.units] == wanted
    assert list(data.person_names) == [str(groups[rows[0]]) for rows in data.units]
    assert data.units.first.tolist() == [rows[0] for rows in wanted]
    assert [wanted[u].count(row) for row, u in enumerate(data.units.owner.tolist())] == [1] * len(groups)
    for outside in (len(wanted), -1):
        with pytest.raises(IndexError):
            data.units[outside]


@given(st.lists(st.integers(0, 8), max_size=12))
def test_records_of_pool_rows_are_those_of_the_whole_pool(rows):
    """Frames and sparse matrices too, training records and candidates in any order."""
    rows = np.array(rows, dtype=np.int64)
    for kind in (np.asarray, pd.DataFrame, sp.csr_matrix, lambda X: [str(v) for v in X]):
        others = (kind(-np.ones((3, 2))), [0, 1, 0])
        data = TrainingData(kind(np.arange(12.0).reshape(6, 2)), [0, 1] * 3, candidates=others)
        wanted = containers.take(data.pool()[0], rows)
        assert containers.content_digest(data.at(rows)) == containers.content_digest(wanted)
    assert data.pool_size == 9
    assert data.pool_labels.tolist() == data.pool()[1].tolist()


@pytest.mark.parametrize("kind", [np.array, lambda v: np.array(v, dtype=float), pd.Series])
def test_candidates_who_are_members_are_dropped_and_each_other_is_one_trial(kind, tmp_path):
    """In the names of groups: two rows of person 1 are a member's, two of 7 and one of 9 are two people."""
    rows, names = containers.take(X, np.arange(5)), kind([7, 1, 7, 9, 1])
    data = TrainingData(X, Y, groups=np.repeat(np.arange(4), 3), candidates=(rows, Y[:5], names))
    data.save(tmp_path)

    for made in (data, TrainingData.load(tmp_path), replace(data)):
        assert made.pool_size == 15
        assert made.candidate_people.tolist() == [0, 0, 1]
