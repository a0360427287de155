"""What training is given beside its records: computed from them, it hides people from leave-one-out."""

import ast
import json

import numpy as np
import pandas as pd
import pytest
from pandas import DataFrame, Series
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import CategoricalNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from privgate import Policy, Recipe, Subject, TrainingData, evaluate
from privgate.artifact import given_values
from privgate.artifact import provenance as provenances
from privgate.artifact.provenance import MANY, provenance
from privgate.check.prepare import prepare
from privgate.errors import SubjectError

RNG = np.random.default_rng(5)
N, CITIES = 400, 40
CITY = RNG.integers(0, CITIES, 2 * N)
RATE = RNG.beta(2, 2, CITIES)
LABEL = (RNG.random(2 * N) < RATE[CITY]).astype(int)
X = pd.DataFrame({"city": [f"city {c}" for c in CITY], "age": RNG.normal(40.123, 9.7, 2 * N)})
MINE = slice(0, N)
ENCODED = {f"city {c}": float(LABEL[MINE][CITY[MINE] == c].mean()) for c in range(CITIES)}
COUNTS = np.bincount(CITY[MINE], minlength=CITIES)
SMOOTHED = {c: float((v * COUNTS[k] + 1) / (COUNTS[k] + 2)) for k, (c, v) in enumerate(ENCODED.items())}
TRUTH = {f"city {c}": float(RATE[c]) for c in range(CITIES)}


def data(candidates=True):
    beside = (X.iloc[N:], LABEL[N:]) if candidates else None
    return TrainingData(X.iloc[MINE], LABEL[MINE], candidates=beside)


def encoded(X, y, *, seed, table, **other):
    rows = np.column_stack([X["city"].map(table).fillna(0.5), X["age"]])
    return WithTable(table, LogisticRegression(random_state=seed).fit(rows, y))


class WithTable:
    def __init__(self, table, model):
        self.table, self.model, self.classes_ = table, model, model.classes_

    def predict_proba(self, X):
        return self.model.predict_proba(np.column_stack([X["city"].map(self.table).fillna(0.5), X["age"]]))


def table_of(X, y):
    return {c: float(y[(X["city"] == c).to_numpy()].mean()) for c in sorted(set(X["city"]))}


def share_of(X, y):
    return 1.0 / len(y)


def found(recipe, fleet, given=None):
    return provenance(prepare(Policy.load("pdtp-1"), Subject.local(recipe, given or data()), fleet=fleet, limits=None))


@pytest.mark.parametrize(
    ("params", "what"),
    [
        ({"table": ENCODED}, "means of label"),
        ({"table": {k: round(v, 3) for k, v in SMOOTHED.items()}}, "means of label"),
        ({"table": {}, "rates": [ENCODED[c] for c in sorted(ENCODED)]}, "means of label"),
        ({"table": {}, "middle": float(X["age"][MINE].mean())}, "the mean of column 'age'"),
        ({"table": {}, "middle": float(np.float32(X["age"][MINE].mean()))}, "the mean of column 'age'"),
        ({"table": {}, "ends": [float(X["age"][MINE].min()), 99.0]}, "the smallest value of column 'age'"),
        ({"table": {}, "prior": [float(1 - LABEL[MINE].mean()), float(LABEL[MINE].mean())]}, "shares of the labels"),
    ],
)
def test_what_was_computed_from_the_data_is_found_and_decides_nothing(fleet, params, what):
    said = found(Recipe(encoded, params=params, seed=1), fleet)
    assert said.outcome == "inconclusive"
    assert what in said.message


def test_a_table_that_follows_these_labels_closer_than_others_is_found_however_it_is_made(fleet):
    rng = np.random.default_rng(2)
    n, cities = 3_000, 300
    city = rng.integers(0, cities, 2 * n)
    label = (rng.random(2 * n) < 0.5).astype(int)
    frame = pd.DataFrame({"city": city, "age": rng.normal(size=2 * n)})
    noisy = {c: float(label[:n][city[:n] == c].mean() ** 2 + rng.normal(0, 0.05)) for c in range(cities)}
    given = TrainingData(frame.iloc[:n], label[:n], candidates=(frame.iloc[n:], label[n:]))
    said = found(Recipe(encoded, params={"table": noisy}, seed=1), fleet, given)
    assert "follow label" in said.message


@pytest.mark.parametrize(
    "params",
    [
        {"table": TRUTH},
        {"table": {}, "middle": 40.0, "ends": [18, 90]},
        {"table": {}, "prior": [1 / 3, 2 / 3], "weights": RNG.normal(size=50).tolist()},
        {"table": {}, "grid": {"C": [0.001, 0.01, 0.1, 1.0]}},
    ],
)
def test_ordinary_parameters_and_a_public_table_are_no_finding(fleet, params):
    assert found(Recipe(encoded, params=params, seed=1), fleet) is None


ROWS = [(c, rate, int(n)) for (c, rate), n in zip(ENCODED.items(), COUNTS, strict=True)]


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame(ROWS, columns=["city", "rate", "n"]),
        pd.DataFrame(ROWS, columns=["city", "rate", "n"]).to_dict("list"),
        pd.DataFrame(ROWS, columns=["city", "rate", "n"]).to_dict("records"),
        {c: {"mean": rate, "count": n} for c, rate, n in ROWS},
        {c: [1 - rate, rate] for c, rate, _ in ROWS},
        ROWS,
        np.array([[1 - rate, rate] for _, rate, _ in ROWS]),
    ],
    ids=["frame", "columns", "records", "aggregated", "by label", "rows", "array"],
)
def test_a_table_is_found_in_whatever_it_is_handed_over(fleet, table):
    frame = pd.DataFrame({"code": CITY, "city": X["city"], "age": X["age"]})
    given = TrainingData(frame.iloc[MINE], LABEL[MINE], candidates=(frame.iloc[N:], LABEL[N:]))
    said = found(Recipe(encoded, params={"table": {}, "given": table}, seed=1), fleet, given)
    assert said is not None
    assert "means of label" in said.message


@pytest.mark.parametrize("edges", [list(range(0, 120, 10)), np.linspace(0, 1, 12), {f"m{k}": k for k in range(12)}])
def test_even_steps_are_no_means_where_a_target_rises_evenly(edges):
    month = np.random.default_rng(0).integers(0, 12, 40_000)
    target = month + np.random.default_rng(1).normal(size=40_000)
    columns = pd.DataFrame({"month": month, "name": [f"m{k}" for k in month]})
    (made,) = (g for g in provenances.given(Recipe(strict, params={"table": edges}, seed=1)) if g.name == "table")
    side = provenances._Side.of(columns, target, None)
    assert provenances._means(made, side) == ""
    made.tables = [{k: float(target[month == k].mean()) for k in range(12)}]
    assert provenances._means(made, side) == "means of the target by 'month'"


@pytest.mark.parametrize(
    "line", ["def scaled(x, middle={}): return x - middle", "scaled = lambda x: (x - {}) / 9.7", "move(by=-{})"]
)
def test_a_mean_that_stands_alone_in_a_source_is_found(line):
    mean = float(X["age"][MINE].mean())
    known = provenances._Side.of(X[MINE], LABEL[MINE], np.unique(LABEL)).statistics()
    ours, theirs = (list(given_values._literals(ast.parse(line.format(v)), "fit.py")) for v in (mean, 3.14159265358979))
    assert [provenances._exact(g, known) for g in ours] == ["the mean of column 'age'"]
    assert [provenances._exact(g, known) for g in theirs] == [""]


def test_much_that_comes_from_nowhere_is_a_warning_and_a_declaration_is_repeated(fleet):
    params = {"table": {}, "weights": RNG.normal(size=MANY).tolist()}
    said = found(Recipe(encoded, params=params, seed=1), fleet)
    assert said.outcome == "warned"
    assert "weights" in said.message
    said = found(Recipe(encoded, params=params, public={"weights": "a published table"}, seed=1), fleet)
    assert said.outcome == "passed"
    told = [p for p in said.detail["parts"] if p["name"] == "weights"]
    assert told == [{"name": "weights", "values": MANY, "found": "", "public": "a published table"}]
    said = found(Recipe(encoded, params={"table": ENCODED}, public={"table": "so they say"}, seed=1), fleet)
    assert said.outcome == "warned"
    assert "so they say" in said.message


def test_a_declaration_of_what_is_not_there_is_said(fleet):
    given = {"params": {"table": {}}, "public": {"tabel": "a published table"}, "seed": 1}
    said = found(Recipe(encoded, **given), fleet)
    assert said.outcome == "warned"
    assert "nothing that training is given has that name: tabel" in said.message
    for name in ("table", "(N, CITIES)"):  # an empty one, and a constant of this file
        said = found(Recipe(encoded, **(given | {"public": {name: "published"}})), fleet)
        assert said is None or said.outcome == "passed"


def test_a_vocabulary_of_everybodys_words_is_known_from_a_public_one(fleet):
    words = [f"w{k}" for k in range(3_000)]
    texts = [" ".join(RNG.choice(words, 6)) for _ in range(2 * N)]
    given = TrainingData(texts[:N], LABEL[MINE], candidates=(texts[N:], LABEL[N:]))
    mine = sorted({w for t in texts[:N] for w in t.split()})
    said = found(Recipe(LogisticRegression(), seed=1, params={}), fleet, given)
    assert said is None
    for vocabulary, outcome in ((mine, "inconclusive"), (words, "warned")):  # many words from nowhere warn
        said = found(Recipe(of_words, params={"vocabulary": vocabulary}, seed=1), fleet, given)
        assert said.outcome == outcome, said.message
    assert found(Recipe(of_words, params={"vocabulary": words}, public={"vocabulary": "a list"}, seed=1), fleet,
                 given).outcome == "passed"  # fmt: skip


def of_words(X, y, *, seed, vocabulary):
    from sklearn.feature_extraction.text import CountVectorizer

    return make_pipeline(CountVectorizer(vocabulary=vocabulary), LogisticRegression(random_state=seed)).fit(X, y)


def test_a_prior_of_an_estimator_is_looked_at_too(fleet):
    codes = RNG.integers(0, 3, (N, 3))
    prior = [float(1 - LABEL[MINE].mean()), float(LABEL[MINE].mean())]
    given = TrainingData(codes, LABEL[MINE])
    assert found(Recipe(CategoricalNB(class_prior=prior), seed=1), fleet, given).outcome == "inconclusive"
    assert found(Recipe(CategoricalNB(class_prior=[0.5, 0.5]), seed=1), fleet, given) is None


def test_what_is_made_of_the_data_is_made_again_without_whoever_is_left_out():
    recipe = Recipe(encoded, made_by={"table": table_of}, seed=1)
    again = Recipe.read(recipe.payload, None)
    for made in (recipe, again):
        model = made.train(X.iloc[MINE], LABEL[MINE], seed=1)
        assert model.table == ENCODED
        less = made.train(X.iloc[1:N], LABEL[1:N], seed=1)
        assert less.table[X["city"][0]] != ENCODED[X["city"][0]]
    assert recipe.payload["made_by"] == {"table": f"{__name__}:table_of"}
    assert recipe.digest != Recipe(encoded, params={"table": ENCODED}, seed=1).digest
    estimator = Recipe(LogisticRegression(), made_by={"C": share_of}, seed=1)
    assert estimator.library_estimator is None  # no theorem, no closed form


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"params": {"table": {}}, "made_by": {"table": table_of}}, "given or declared public as well"),
        ({"made_by": {"table": 3}}, "must be a function"),
        ({"params": {"table": {}}, "public": {"table": " "}}, "where the parameter comes from"),
        ({"made_by": {"tabel": table_of}}, "cannot be called"),
        ({"params": {"table": StandardScaler().fit(X[["age"]])}}, "'table' is fitted already"),
        ({"params": {"table": [make_pipeline(StandardScaler().fit(X[["age"]]))]}}, "'table' is fitted already"),
    ],
)
def test_a_declaration_that_says_nothing_is_refused(given, why):
    with pytest.raises(SubjectError, match=why):
        Recipe(encoded if "tabel" not in given.get("made_by", {}) else strict, seed=1, **given)


def strict(X, y, *, seed, table):
    return encoded(X, y, seed=seed, table=table)


def test_a_table_of_everybody_stops_the_check_before_anything_is_trained(fleet):
    verdict = evaluate(
        Policy.load("pdtp-1"), Subject.local(Recipe(encoded, params={"table": ENCODED}, seed=1), data()), fleet=fleet
    )
    assert verdict.outcome == "inconclusive"
    assert any("made_by" in f.message for f in verdict.findings)


#: as a script has them at its top; its source holds no number
MIDDLE = X["age"][MINE].mean()
RATES = pd.Series(ENCODED)
LINES = pd.DataFrame({"city": ENCODED.keys(), "rate": ENCODED.values()})
READ = json.loads(json.dumps(ENCODED))
ELSEWHERE = pd.Series(TRUTH)
UNUSED = X["age"][MINE].std()


def about_the_middle(X, y, *, seed):
    return encoded(X.assign(age=X["age"] - MIDDLE), y, seed=seed, table={})


def rates_of_a_module(X, y, *, seed):
    return encoded(X, y, seed=seed, table=RATES.to_dict())


def lines_of_a_module(X, y, *, seed):
    return encoded(X, y, seed=seed, table=dict(zip(LINES["city"], LINES["rate"], strict=True)))


def read_by_a_module(X, y, *, seed):
    def inner():
        return READ

    return encoded(X, y, seed=seed, table=inner())


def by_a_helper(X, y, *, seed):
    return rates_of_a_module(X, y, seed=seed)


def public_of_a_module(X, y, *, seed):
    return encoded(X, y, seed=seed, table=ELSEWHERE.to_dict())


class Config:
    MIDDLE = X["age"][MINE].mean()


SCALER = StandardScaler().fit(X[["age"]][MINE])
NOTHING = 0.0
NOTHING = X["age"][MINE].mean()


def by_a_class(X, y, *, seed):
    return encoded(X.assign(age=X["age"] - Config.MIDDLE), y, seed=seed, table={})


def by_a_fitted_object(X, y, *, seed):
    return encoded(X.assign(age=SCALER.transform(X[["age"]])[:, 0]), y, seed=seed, table={})


def written_first(X, y, *, seed):
    return encoded(X.assign(age=X["age"] - NOTHING), y, seed=seed, table={})


def by_default(X, y, *, seed, middle=NOTHING):
    return encoded(X.assign(age=X["age"] - middle), y, seed=seed, table={})


@pytest.mark.parametrize(
    ("fit", "what"),
    [
        *((f, "the mean of column 'age'") for f in (by_a_class, by_a_fitted_object, written_first, by_default)),
        (about_the_middle, "the mean of column 'age'"),
        (rates_of_a_module, "means of label 0 by 'city'"),
        (lines_of_a_module, "means of label 0 by 'city'"),
        (read_by_a_module, "means of label 0 by 'city'"),
        (by_a_helper, "means of label 0 by 'city'"),
    ],
)
def test_what_a_module_computes_when_it_is_imported_is_found(fit, what, fleet):
    said = found(Recipe(fit, seed=1), fleet)
    assert said.outcome == "inconclusive"
    assert what in said.message


def test_what_a_module_computes_of_other_data_is_none(fleet):
    said = found(Recipe(public_of_a_module, seed=1), fleet)
    assert said is None or said.outcome == "passed"
    declared = found(Recipe(rates_of_a_module, seed=1, public={"RATES": "a survey"}), fleet)
    assert declared.outcome == "warned"
    assert "RATES" in declared.message


#: named as a method that the training calls, and read by nobody
mean = X["age"][MINE].mean()
#: of two columns of one name, by an index of two
TWICE = pd.concat([pd.Series(ENCODED), pd.Series(ENCODED)], axis=1, keys=["rate", "rate"]).set_index(
    [np.arange(CITIES), [*ENCODED]]
)


def of_its_own_data(X, y, *, seed):
    middle = Series(X["age"]).mean()
    return encoded(DataFrame(X.assign(age=X["age"] - middle)), y, seed=seed, table={})


def with_strange_table(X, y, *, seed):
    return encoded(X, y, seed=seed, table=dict.fromkeys(ENCODED_NAMES, TWICE.shape[0] / 1000))


ENCODED_NAMES = ["city 1"]


class settings:  # noqa: N801  as a module is named
    """As a module of settings is named, whose function is no estimator's."""

    PLACES = [[X.iloc[:2], 0.5], [X.iloc[2:4], 0.7]]  # noqa: RUF012  as people write it

    @staticmethod
    def get_params(path):
        return path


def with_settings(X, y, *, seed):
    return encoded(X, y, seed=seed, table={"city 1": len(settings.PLACES) / 1000 + len(settings.get_params("a"))})


@pytest.mark.parametrize("fit", [of_its_own_data, with_strange_table, with_settings])
def test_classes_of_libraries_names_of_methods_and_strange_frames_refuse_nothing(fit, fleet):
    said = found(Recipe(fit, seed=1), fleet)
    assert said is None or said.outcome != "inconclusive"


def test_everything_doubtful_is_said(fleet):
    table = dict(ENCODED)
    said = found(
        Recipe(encoded, params={"table": table}, seed=1, public={"table": "a survey", "tabel": "a survey"}), fleet
    )
    assert said.outcome == "warned"
    assert "has that name: tabel" in said.message
    assert "made of these data as it seems: table" in said.message
