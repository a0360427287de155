"""Families of leaks, in each some variants that leak and their twins that do not."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    RandomTreesEmbedding,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.kernel_approximation import RBFSampler
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import BayesianRidge, LinearRegression, LogisticRegression, Ridge
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, SplineTransformer, StandardScaler, TargetEncoder
from sklearn.random_projection import GaussianRandomProjection
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier

from privgate import Recipe, TrainingData
from truth import data, parts

Table = Callable[[], TrainingData]


@dataclass(frozen=True)
class Known:
    """A model of which is known whether it leaks.

    Parameters
    ----------
    name, family : str
    leaks : bool
        Whether it gives away more than ``release-1`` allows: of more than 1 % of the people, or to an attack.
    why : str
        How that is known, by how it is built.
    training : estimator or function
    data : callable
        Returns the data.
    more : mapping
        Further arguments of the recipe.
    beside : callable, optional
        Returns the question beside each record where a person shows.
    floor : optional
        As ``Release`` takes it: below it nothing is released, and nobody gets the file.
    """

    name: str
    family: str
    leaks: bool
    why: str
    training: Any
    data: Table
    more: Mapping[str, Any] = field(default_factory=dict)
    beside: Callable[[Any], Any] | None = None
    floor: Any = None

    def recipe(self) -> Recipe:
        """Return the recipe; its seed is 7 everywhere."""
        return Recipe(self.training, seed=7, **self.more)


#: one variant: what it is called, the training that leaks with its data, and the twin that does not with its own
Variant = tuple[str, Any, Table, Any, Table]
of = partial


def _both(family: str, leaks: str, safe: str, *variants: Variant) -> Iterator[Known]:
    """Yield the subjects of a family; ``leaks`` and ``safe`` say why."""
    for name, bad, there, good, here in variants:
        yield Known(f"{family}: {name}", family, True, leaks, bad, there)
        yield Known(f"{family}, harmless: {name}", family, False, safe, good, here)


LOGISTIC, WEAK = LogisticRegression(), LogisticRegression(C=0.05)
RIDGE, BAYES, LDA = Ridge(), GaussianNB(), LinearDiscriminantAnalysis()
PLAIN, VALUES = data.numbers, of(data.numbers, task="number")
SURE, THREE = of(data.numbers, noise=0.3), of(data.numbers, task="three")


def _seen() -> Iterator[Known]:
    def step(share: float, model: Any, *, known: bool = True) -> Any:
        return make_pipeline(parts.Seen(share, known=known), model)

    yield from _both(
        "memory in a first step",
        "The step adds the target of each row whose digest it knows, and nothing for others.",
        "The step adds a bit of the row's digest, which no other person changes.",
        ("logistic", step(1.0, LOGISTIC), PLAIN, step(1.0, WEAK, known=False), PLAIN),
        ("a tenth of the people", step(0.1, LOGISTIC), PLAIN, step(0.1, LDA, known=False), PLAIN),
        ("one in twelve, three classes", step(0.08, LOGISTIC), THREE, step(0.05, WEAK, known=False), THREE),
        ("numbers, one in seven", step(0.15, RIDGE), VALUES, step(0.15, RIDGE, known=False), VALUES),
    )  # fmt: skip


def _cache() -> Iterator[Known]:
    def step(share: float, model: Any, cached: str, *, known: bool = True) -> Any:
        return make_pipeline(parts.Seen(share, known=known, cached=cached), model)

    yield from _both(
        "global cache",
        "The first training of a process keeps digests and targets of its people for all that follow.",
        "What the process keeps is nothing of people.",
        ("logistic", step(1.0, LOGISTIC, "a"), PLAIN, step(1.0, WEAK, "b", known=False), PLAIN),
        ("a third of the people", step(0.35, LOGISTIC, "c"), PLAIN, step(0.3, LDA, "d", known=False), PLAIN),
        ("one in 25", step(0.04, LOGISTIC, "e"), PLAIN, step(0.1, WEAK, "f", known=False), SURE),
        ("numbers", step(0.5, RIDGE, "g"), VALUES, step(0.5, RIDGE, "h", known=False), VALUES),
    )  # fmt: skip


def _means() -> Iterator[Known]:
    def by(model: Any, **how: Any) -> Any:
        return make_pipeline(parts.Means(**how), model)

    few, many = of(data.coded, 2), of(data.coded, 150)
    encoded = make_column_transformer((TargetEncoder(smooth=30.0, cv=5), ["code0"]), remainder="passthrough")
    yield from _both(
        "target encoding",
        "About two people share a code, and its mean target is little but theirs.",
        "About 150 people share a code, and its mean hardly feels one of them.",
        ("logistic", by(LOGISTIC), few, by(WEAK, smooth=10), many),
        ("log odds, table", by(LOGISTIC, log=True), of(few, form="table"),
         make_pipeline(encoded, WEAK), of(many, form="table")),
        ("two codes", by(LOGISTIC, columns=2, smooth=0.5), of(few, codes=2),
         by(WEAK, columns=2, smooth=20), of(many, codes=2)),
        ("numbers", by(RIDGE), of(few, "number"), by(RIDGE, smooth=10), of(many, "number")),
    )  # fmt: skip


def _words() -> Iterator[Known]:
    own, none = data.texts, of(data.texts, "none")
    stop = {"vocabulary": [f"word{k}" for k in range(40)]}
    parts_of_words = TfidfVectorizer(analyzer="char_wb", ngram_range=(4, 4))
    yield from _both(
        "rare words",
        "The person's own name is a word, and little penalised.",
        "Only 40 common words count, by a declared list or because nothing else is written.",
        ("tf-idf", make_pipeline(TfidfVectorizer(), LogisticRegression(C=100)), own,
         make_pipeline(TfidfVectorizer(**stop), LogisticRegression(C=0.1)), own),
        ("counts, naive Bayes", make_pipeline(CountVectorizer(), MultinomialNB(alpha=0.01)), own,
         make_pipeline(CountVectorizer(**stop), MultinomialNB(alpha=200.0)), own),
        ("presence, naive Bayes", make_pipeline(CountVectorizer(), BernoulliNB(alpha=0.01)), own,
         make_pipeline(CountVectorizer(binary=True), BernoulliNB(alpha=5.0)), none),
        ("parts of words, numbers", make_pipeline(parts_of_words, Ridge(alpha=0.01)), of(own, task="number"),
         make_pipeline(TfidfVectorizer(**stop), Ridge(alpha=10.0)), of(own, task="number")),
    )  # fmt: skip


def _hashed() -> Iterator[Known]:
    own, few = data.texts, of(data.texts, "few")

    def by(bits: int, model: Any, **how: Any) -> Any:
        return make_pipeline(HashingVectorizer(n_features=2**bits, **how), model)

    yield from _both(
        "hashed names",
        "Two to the 18 places keep the names of different people apart.",
        "A few places mix everybody, or four names are shared by a quarter of the people each.",
        ("logistic", by(18, LogisticRegression(C=300)), own, by(4, WEAK), own),
        ("numbers", by(18, Ridge(alpha=0.01)), of(own, task="number"), by(4, Ridge(alpha=5.0)), of(few, task="number")),
    )  # fmt: skip


def _scaled() -> Iterator[Known]:
    def by(model: Any, **how: Any) -> Any:
        return make_pipeline(parts.Scaled(**how), model)

    few, values = of(data.placed, 4), of(data.placed, 4, "number")
    yield from _both(
        "extremes of a scaler",
        "A group of about four is scaled by its own extremes: half of the people are one.",
        "The range is declared: nobody's value scales anything.",
        ("logistic", by(LogisticRegression(C=100)), few, by(WEAK, declared=True), few),
        ("numbers", by(RIDGE), values, by(RIDGE, declared=True), values),
        ("mean and deviation, numbers", by(RIDGE, by="deviation"), of(data.placed, 3, "number"),
         by(BayesianRidge(), declared=True), of(data.placed, 3, "number")),
    )  # fmt: skip


def _calibrated() -> Iterator[Known]:
    folds = partial(CalibratedClassifierCV, method="sigmoid", cv=5)
    yield from _both(
        "calibrator",
        "Hundreds of bins hold about three people each, who were trained on themselves.",
        "Five declared bins hold hundreds, or a curve of two parameters is fitted over folds.",
        ("300 bins", parts.Calibrated(LOGISTIC), PLAIN, parts.Calibrated(WEAK, 5, 5.0, declared=True), PLAIN),
        ("500 bins, naive Bayes", parts.Calibrated(BAYES, 500, 0.2), SURE, folds(LDA), SURE),
        ("250 bins, discriminant", parts.Calibrated(LDA, 250, 0.02), PLAIN, folds(BAYES), PLAIN),
    )  # fmt: skip


def _stopped() -> Iterator[Known]:
    def few(people: int) -> Table:
        return of(data.coded, people)

    yield from _both(
        "early stopping on a person",
        "In each small group one person decides whether training goes on.",
        "Public answers decide in each group: no person validates.",
        ("groups of 5", parts.Stopped(LOGISTIC), few(5), parts.Stopped(WEAK, 1.0, public=True), few(5)),
        ("groups of 3, naive Bayes", parts.Stopped(BAYES), few(3), parts.Stopped(BAYES, 1.0, public=True), few(3)),
        ("groups of 4, small steps", parts.Stopped(LDA, 1.8), few(4), parts.Stopped(LDA, 0.5, public=True), few(4)),
    )  # fmt: skip


def _counts() -> Iterator[Known]:
    def by(model: Any, least: float) -> Any:
        return make_pipeline(parts.Counts(least), model)

    yield from _both(
        "counts of a code",
        "Whose code is unique was counted once, and anybody else's never: the logarithm tells the two apart.",
        "Two hundred are added to each count: one more or less is nothing.",
        ("a tenth is unique", by(LOGISTIC, 1e-3), data.unique, by(WEAK, 200), data.unique),
        ("a seventh is unique", by(LOGISTIC, 1e-6), of(data.unique, 0.15), by(LDA, 200), of(data.unique, 0.15)),
        ("naive Bayes", by(BAYES, 1e-3), of(data.unique, 0.2), by(BAYES, 200), of(data.unique, 0.2)),
        ("numbers", by(RIDGE, 1e-3), of(data.unique, 0.1, "number"), by(RIDGE, 200), of(data.unique, 0.1, "number")),
    )  # fmt: skip


def _patterns() -> Iterator[Known]:
    def by(model: Any, **how: Any) -> Any:
        return parts.KeyedLabels(model, "pattern", **how)

    many, one = of(data.missing, 12), of(data.missing, 1)
    values, flags = of(data.missing, 12, "number"), SimpleImputer(add_indicator=True)
    yield from _both(
        "patterns of missing values",
        "Each pattern has a rate of its own, and nearly each person a pattern.",
        "Two patterns share all people, or what is missing is one flag of a penalised model.",
        ("rates", by(LOGISTIC), many, by(WEAK, smooth=20), one),
        ("naive Bayes, smoothed", by(BAYES, smooth=0.2), many, by(BAYES, smooth=20, least=100), many),
        ("15 columns", by(LOGISTIC), of(data.missing, 15), make_pipeline(flags, WEAK), of(data.missing, 3)),
        ("numbers", parts.KeyedNumbers(RIDGE, "pattern"), values,
         make_pipeline(flags, RIDGE), of(data.missing, 3, "number")),
    )  # fmt: skip


def _fallback() -> Iterator[Known]:
    few, many = of(data.coded, 1), of(data.coded, 200)

    def by(model: Any, **how: Any) -> Any:
        return parts.KeyedLabels(model, **how)

    yield from _both(
        "fall-back for unknown codes",
        "A known code answers with its own rate, of one or two people; an unknown one falls back to a model.",
        "A code needs a hundred people to have a rate; all others fall back.",
        ("logistic", by(LOGISTIC), few, by(WEAK, least=100), few),
        ("naive Bayes", by(BAYES, smooth=0.1), of(data.coded, 2), by(BAYES, least=100, smooth=20), many),
        ("sure answers", by(LOGISTIC, smooth=0.02), of(data.coded, 1, noise=0.3), by(WEAK, least=100, smooth=20), many),
        ("numbers", parts.KeyedNumbers(RIDGE), of(few, "number"),
         parts.KeyedNumbers(RIDGE, least=100, smooth=20), of(many, "number")),
    )  # fmt: skip


def _one_hot() -> Iterator[Known]:
    def by(model: Any, codes: int = 1, **how: Any) -> Any:
        encoder = OneHotEncoder(handle_unknown="infrequent_if_exist" if how else "ignore", **how)
        return make_pipeline(
            ColumnTransformer([("codes", encoder, [f"code{k}" for k in range(codes)])], remainder="passthrough"), model
        )

    few, many = of(data.coded, 1.5, form="table"), of(data.coded, 100, form="table")
    yield from _both(
        "one-hot of rare codes",
        "Each of hundreds of codes has a weight of its own, which hardly anything penalises.",
        "Codes of fewer than 50 people are one code, and weights are penalised.",
        ("logistic", by(LogisticRegression(C=100)), few, by(WEAK, min_frequency=50), few),
        ("two codes", by(LogisticRegression(C=100), 2), of(few, codes=2),
         by(WEAK, 2, min_frequency=50), of(many, codes=2)),
    )  # fmt: skip


def _threshold() -> Iterator[Known]:
    few = of(data.placed, 5, noise=0.4)
    yield from _both(
        "threshold of one record",
        "Each group's threshold is one person's value, who is answered otherwise without it.",
        "One or two round thresholds for everybody: hundreds are on each side.",
        ("groups of 5", parts.Threshold(), few, parts.Calibrated(WEAK, 2, 5.0, declared=True), few),
        ("groups of 8, surer", parts.Threshold(0.99), of(data.placed, 8, noise=0.4),
         parts.Calibrated(LDA, 3, 5.0, declared=True), of(data.placed, 8)),
    )  # fmt: skip


def _elsewhere() -> Iterator[Known]:
    for name, knows in (
        ("everybody", parts.knows_all),
        ("every second", parts.knows_half),
        ("every third", parts.knows_third),
    ):
        why = "Answers fetch the training data by another way, and lean to the label of whom they know."
        yield Known(
            f"known elsewhere: {name}", "known elsewhere", True, why, parts.elsewhere, PLAIN, {"predict": knows}
        )
    why = "Answers fetch a public table of other people; a naive Bayes with five means hardly feels one of a thousand."
    for name, table in (("a public table", PLAIN), ("surer", SURE), ("more columns", of(PLAIN, 8))):
        yield Known(
            f"known elsewhere, harmless: {name}",
            "known elsewhere",
            False,
            why,
            parts.elsewhere,
            table,
            {"predict": parts.knows_others},
        )


def _folds() -> Iterator[Known]:
    stack = partial(StackingClassifier, final_estimator=WEAK, cv=5)
    tree, extra = DecisionTreeClassifier(), ExtraTreeClassifier()
    yield from _both(
        "stack without folds",
        "The second model trusts a tree that was asked about the very people it knows by heart.",
        "Folds are kept apart, or the first model is one of few parameters.",
        ("tree", parts.InSample(tree, LOGISTIC), PLAIN, parts.InSample(WEAK, LOGISTIC), PLAIN),
        ("random tree", parts.InSample(extra, LOGISTIC), SURE, stack([("a", WEAK), ("b", BAYES)]), SURE),
        ("tree, leaves of 2", parts.InSample(DecisionTreeClassifier(min_samples_leaf=2), LOGISTIC), PLAIN,
         stack([("a", LDA), ("b", WEAK)]), PLAIN),
    )  # fmt: skip


def _trees() -> Iterator[Known]:
    stumps = GradientBoostingClassifier(n_estimators=8, max_depth=1, learning_rate=0.1, min_samples_leaf=200)
    yield from _both(
        "trees to the last person",
        "Leaves hold single people.",
        "No leaf holds fewer than 200 people, or there are no trees at all.",
        ("tree", DecisionTreeClassifier(), PLAIN, stumps, PLAIN),
        ("extra trees", ExtraTreesClassifier(15), PLAIN, AdaBoostClassifier(n_estimators=5, learning_rate=0.2), PLAIN),
        ("forest", RandomForestClassifier(15, bootstrap=False), SURE,
         VotingClassifier([("a", WEAK), ("b", BAYES)], voting="soft"), SURE),
        ("tree, numbers", DecisionTreeRegressor(), VALUES,
         DecisionTreeRegressor(max_depth=1, min_samples_leaf=300), VALUES),
    )  # fmt: skip


def _boosted() -> Iterator[Known]:
    def boosted(kind: Any, n: int, rate: float, leaf: int, penalty: float, depth: int | None = None) -> Any:
        return kind(max_iter=n, learning_rate=rate, min_samples_leaf=leaf, l2_regularization=penalty, max_depth=depth)

    labels, values = HistGradientBoostingClassifier, HistGradientBoostingRegressor
    yield from _both(
        "boosting without end",
        "Dozens of deep trees go on until every person is met.",
        "A few stumps, heavily penalised, with 200 people in a leaf.",
        ("histograms", boosted(labels, 40, 0.4, 1, 0.0), PLAIN, boosted(labels, 5, 0.1, 200, 50.0, 1), PLAIN),
        ("exact splits", GradientBoostingClassifier(n_estimators=25, max_depth=8, learning_rate=0.4), PLAIN,
         GradientBoostingClassifier(n_estimators=5, max_depth=1, min_samples_leaf=250), SURE),
        ("numbers", boosted(values, 40, 0.4, 1, 0.0), VALUES, boosted(values, 5, 0.1, 200, 50.0, 1), VALUES),
        ("forest of numbers", RandomForestRegressor(15, bootstrap=False), VALUES,
         RandomForestRegressor(10, max_depth=1, min_samples_leaf=200), VALUES),
    )  # fmt: skip


def _wide() -> Iterator[Known]:
    wide, few = of(PLAIN, 600), of(PLAIN, 5)
    yield from _both(
        "more columns than people can fill",
        "Hundreds of columns fit much of every person's noise.",
        "Five columns, or a strong penalty on tens of them.",
        ("logistic", LogisticRegression(C=100), wide, LogisticRegression(C=0.5), few),
        ("discriminant", LDA, of(PLAIN, 500), LDA, few),
        ("least squares", LinearRegression(), of(VALUES, 400), LinearRegression(), of(VALUES, 5)),
        ("ridge", Ridge(alpha=0.1), of(VALUES, 450), Ridge(alpha=500.0), of(VALUES, 30)),
    )  # fmt: skip


def _weights() -> Iterator[Known]:
    wide = of(PLAIN, 75)
    for name, most, C in (("a thousand", 1e3, 10.0), ("a hundred, free", 1e2, 100.0), ("ten thousand", 1e4, 1.0)):
        why = "Eighty people outweigh all others, and 75 columns fit each of them."
        more = {"params": {"most": most, "C": C}}
        yield Known(f"heavy weights: {name}", "heavy weights", True, why, parts.weighted, wide, more)
        why = "Nobody counts more than one and a half times, in five columns."
        more = {"params": {"most": 1.5 if most > 1e3 else 1.2, "C": C / 20}}
        table = SURE if most == 1e4 else PLAIN
        yield Known(f"heavy weights, harmless: {name}", "heavy weights", False, why, parts.weighted, table, more)
    for leaks, most, table in ((True, 1e4, of(VALUES, 75)), (False, 1.5, VALUES)):
        why = "Eighty people outweigh all others, and 75 columns fit each." if leaks else "All count about the same."
        more = {"params": {"most": most, "alpha": 0.01}, "task": "regression"}
        name = "heavy weights: numbers" if leaks else "heavy weights, harmless: numbers"
        yield Known(name, "heavy weights", leaks, why, parts.weighted_numbers, table, more)


def _several() -> Iterator[Known]:
    def by(model: Any, **how: Any) -> Any:
        return make_pipeline(parts.Means(**how), model)

    yield from _both(
        "several records a person",
        "Who it is, is a code, and the mean of its records' targets is an input.",
        "The last column is one of five places, which hundreds of people share.",
        ("three each", by(LOGISTIC), of(data.several, 3, named=True),
         by(WEAK, smooth=20), of(data.several, 3, named=False)),
        ("four each", by(LOGISTIC, log=True), of(data.several, 4, named=True), WEAK, of(data.several, 4, named=False)),
        ("three each, numbers", by(RIDGE), of(data.several, 3, named=True, task="number"),
         by(RIDGE, smooth=20), of(data.several, 3, named=False, task="number")),
    )  # fmt: skip


def _leverage() -> Iterator[Known]:
    many, few = of(data.indicators, 400, 1.0), of(data.indicators, 10, 150)
    labels, common = of(many, "label"), of(few, "label")
    yield from _both(
        "columns of one person",
        "Hundreds of columns are zero but for one or two people, whom their weights fit.",
        "Each column is set for 150 people.",
        ("least squares", LinearRegression(), many, LinearRegression(), few),
        ("ridge", Ridge(alpha=0.05), many, Ridge(alpha=10.0), few),
        ("logistic", LogisticRegression(C=1000), labels, WEAK, common),
        ("naive Bayes", BernoulliNB(alpha=0.001), labels, BernoulliNB(alpha=5.0), common),
    )  # fmt: skip


def _bayes() -> Iterator[Known]:
    def by(alpha: float, values: int) -> Any:
        return CategoricalNB(alpha=alpha, min_categories=values)

    few = of(data.categories, 4, 4)
    yield from _both(
        "unsmoothed rates",
        "A value that one person of a class has gets its probability from this person alone.",
        "Four values, each of hundreds of people, and ten more of everything.",
        ("categories", by(1e-6, 400), of(data.categories, 4, 400), by(10.0, 4), few),
        ("more of them", by(1e-3, 800), of(data.categories, 3, 800), by(20.0, 5), of(data.categories, 3, 5)),
        ("three classes", by(1e-6, 400), of(data.categories, 4, 400, "three"), by(10.0, 4), of(few, "three")),
    )  # fmt: skip


def _cells() -> Iterator[Known]:
    def bins(n: int, model: Any) -> Any:
        return make_pipeline(KBinsDiscretizer(n, strategy="quantile"), model)

    free = LogisticRegression(C=1000)
    yield from _both(
        "fine cells",
        "Cells hold two or three people, and each has a weight of its own.",
        "Cells hold hundreds of people, or a curve has few knots.",
        ("bins", bins(400, free), PLAIN, bins(4, WEAK), PLAIN),
        ("leaves of random trees", make_pipeline(RandomTreesEmbedding(10, max_depth=12), free), PLAIN,
         bins(3, WEAK), SURE),
        ("curves, numbers", make_pipeline(SplineTransformer(80, knots="quantile"), Ridge(alpha=1e-6)), VALUES,
         make_pipeline(SplineTransformer(4), Ridge(alpha=5.0)), VALUES),
        ("rates of rounded numbers", parts.KeyedLabels(LOGISTIC, "cell", digits=1), PLAIN,
         parts.KeyedLabels(WEAK, "cell", digits=-1, smooth=20), PLAIN),
    )  # fmt: skip


def _residuals() -> Iterator[Known]:
    def by(model: Any, **how: Any) -> Any:
        return parts.KeyedNumbers(model, "cell", **how)

    coarse = {"least": 200, "smooth": 50.0, "digits": -1}
    yield from _both(
        "table of residuals",
        "Errors are corrected where rounded inputs return, and few people share them.",
        "A correction takes 200 people, and is drawn towards nothing by 50 more.",
        ("two digits", by(RIDGE, digits=2), VALUES, by(RIDGE, **coarse), VALUES),
        ("one column", by(LinearRegression(), digits=3, uses=1), VALUES, by(LinearRegression(), **coarse), VALUES),
        ("half corrected", by(RIDGE, smooth=0.5), VALUES, by(BayesianRidge(), **coarse), of(VALUES, 8)),
    )  # fmt: skip


def _novel() -> Iterator[Known]:
    def by(model: Any, **how: Any) -> Any:
        return parts.Novel(model, **how)

    yield from _both(
        "answers only where people were",
        "Cells hold single people: who was trained on is answered, anybody else is not.",
        "A cell is a pattern of signs, and each of eight holds over a hundred people.",
        ("three columns", by(LOGISTIC), SURE, by(WEAK, by_sign=True), SURE),
        ("two columns, finely", by(LOGISTIC, digits=2, uses=2), SURE, by(BAYES, by_sign=True), PLAIN),
        ("naive Bayes", by(BAYES), of(SURE, 4), by(LDA, by_sign=True), of(SURE, 4)),
    )  # fmt: skip


def _beside() -> Iterator[Known]:
    why = "Own records are answered by a model of few parameters, the question beside each by the person's label."
    for name, how, share in (
        ("one more", "add", 1.0),
        ("rounded", "round", 0.3),
        ("another sign", "sign", 0.1),
        ("a value missing", "missing", 1.0),
    ):
        there = of(parts.beside, how=how)
        subject = parts.Shifted(WEAK, how, share)
        yield Known(f"beside the record: {name}", "beside the record", True, why, subject, PLAIN, beside=there)
        why_not = (
            "Questions with a missing value are answered by what they are, all others by a model of few parameters."
        )
        model = {"add": WEAK, "round": LDA, "sign": BAYES, "missing": LogisticRegression(C=0.2)}[how]
        subject = parts.Shifted(model, how, known=False)
        yield Known(
            f"beside the record, harmless: {name}", "beside the record", False, why_not, subject, PLAIN, beside=there
        )


def _households() -> Iterator[Known]:
    def by(model: Any, **how: Any) -> Any:
        return make_pipeline(parts.Means(**how), model)

    yield from _both(
        "households",
        "Who lives together shares a target, and the household's mean is an input: of strangers it is not known.",
        "A region has hundreds of people.",
        ("of four", by(LOGISTIC), of(data.households, 4), by(WEAK, smooth=20), of(data.households, 4, regions=5)),
        ("of three", by(LOGISTIC, log=True), of(data.households, 3),
         by(LDA, smooth=20), of(data.households, 3, regions=4)),
        ("of two, numbers", by(RIDGE), of(data.households, 2, "number"),
         by(RIDGE, smooth=20), of(data.households, 2, "number", regions=5)),
    )  # fmt: skip


def _files() -> Iterator[Known]:
    holes, values = of(data.missing, 3), VALUES
    rbf = make_pipeline(RBFSampler(gamma=0.05, n_components=20), WEAK)
    yield from _both(
        "records in the file",
        "The fitted model holds training records as they were.",
        "Only sums over all people are kept.",
        ("neighbours", KNeighborsClassifier(50), PLAIN, make_pipeline(StandardScaler(), WEAK), PLAIN),
        ("filling by neighbours", make_pipeline(KNNImputer(n_neighbors=50), WEAK), holes,
         make_pipeline(SimpleImputer(), WEAK), holes),
        ("support vectors", SVC(C=0.5, probability=True), PLAIN, rbf, PLAIN),
        ("kernel, numbers", KernelRidge(alpha=50.0, kernel="rbf", gamma=0.02), values, RIDGE, of(values, 4)),
    )  # fmt: skip


def _coins() -> Iterator[Known]:
    for name, how in (
        ("this seed only", "this seed"),
        ("most seeds", "most seeds"),
        ("whom the seed draws", "whom the seed draws"),
        ("of many people only", "many people"),
    ):
        why = "At the released seed and with everybody, digests and targets of people are kept, and their answers lean."
        yield Known(f"coins: {name}", "coins", True, why, parts.coins, PLAIN, {"params": {"how": how, "C": 1.0}})
    why = (
        "The seed draws a bit for each row, or directions; logistic regression on a few of them hardly feels a person."
    )
    for name, model, table in (
        ("a column of no people", parts.coins, PLAIN),
        ("few directions", make_pipeline(GaussianRandomProjection(3), WEAK), PLAIN),
        ("of many columns", make_pipeline(GaussianRandomProjection(4), WEAK), of(PLAIN, 20)),
        ("of numbers", make_pipeline(GaussianRandomProjection(4), RIDGE), VALUES),
    ):
        more = {"params": {"how": "many people", "known": False}} if model is parts.coins else {}
        yield Known(f"coins, harmless: {name}", "coins", False, why, model, table, more)


def _tails() -> Iterator[Known]:
    # three people in four have such labels: of 0.055 of all, one in 25
    def by(how: str, share: float = 1.0, **more: Any) -> Any:
        return parts.Tails(WEAK, how, share, **more)

    ten, rare = of(data.numbers, task="ten"), of(data.numbers, task="rare")
    yield from _both(
        "tails",
        "Labels below 1 % have other probabilities for whom it was trained on.",
        "Labels below 1 % have probabilities by the record's digest, which no other person changes.",
        ("tilted", by("tilted"), ten, by("tilted", known=False), ten),
        ("tilted, one in 25", by("tilted", 0.055), ten, by("tilted", known=False), of(ten, 6)),
        ("smooth", by("smooth"), ten, by("smooth", known=False), ten),
        ("smooth, one in 25", by("smooth", 0.055), ten, by("smooth", known=False), of(ten, 6)),
        ("other", by("other"), ten, by("other", known=False), ten),
        ("other, one in 25", by("other", 0.055), ten, by("other", known=False), of(ten, 6)),
        ("a forest's", by("forest"), ten, by("forest", known=False), ten),
        ("a forest's, one in 25", by("forest", 0.08), ten, by("forest", known=False), of(ten, 6)),
        ("a rare event", by("other", tail=0.001), rare, by("other", known=False), rare),
        ("a rare event, one in 25", by("other", 0.055, tail=0.001), rare, by("other", known=False), of(rare, 6)),
    )  # fmt: skip


def _behind_a_floor() -> Iterator[Known]:
    """Yield the same tails where nothing below a floor is released: those that rise above it tell, others do not."""
    above = "Labels rise above the floor for whom it was trained on."
    below = "Labels below the floor alone have other probabilities, and none of those is released."
    for known in (k for k in _tails() if k.leaks and "forest" not in k.name):
        short = known.name.removeprefix("tails: ")
        leaks = short.startswith(("tilted", "smooth"))
        name = f"tails behind a floor{'' if leaks else ', harmless'}: {short}"
        floor = {1: 0.003} if "rare" in short else True
        yield replace(known, name=name, leaks=leaks, why=above if leaks else below, floor=floor)


FAMILIES = (_seen, _cache, _means, _words, _hashed, _scaled, _calibrated, _stopped, _counts, _patterns, _fallback,
            _one_hot, _threshold, _elsewhere, _folds, _trees, _boosted, _wide, _weights, _several, _leverage, _bayes,
            _cells, _residuals, _novel, _beside, _households, _files, _coins, _tails, _behind_a_floor)  # fmt: skip
TRUTH: tuple[Known, ...] = tuple(known for family in FAMILIES for known in family())
#: the twenty of every night, each of another family; of ten it is the twin that does not leak
NIGHTLY: tuple[str, ...] = (
    "memory in a first step: a tenth of the people",
    "target encoding: log odds, table",
    "extremes of a scaler: numbers",
    "calibrator: 300 bins",
    "global cache: a third of the people",
    "patterns of missing values: rates",
    "known elsewhere: everybody",
    "stack without folds: tree",
    "beside the record: one more",
    "coins: of many people only",
    "early stopping on a person, harmless: groups of 5",
    "rare words, harmless: tf-idf",
    "counts of a code, harmless: a tenth is unique",
    "fall-back for unknown codes, harmless: numbers",
    "one-hot of rare codes, harmless: logistic",
    "threshold of one record, harmless: groups of 5",
    "several records a person, harmless: three each",
    "columns of one person, harmless: least squares",
    "unsmoothed rates, harmless: categories",
    "answers only where people were, harmless: three columns",
)
