"""The UCI Adult sample as categorical codes with a declared domain.

Becker, B. and Kohavi, R. (1996), Adult, UCI Machine Learning Repository, CC BY 4.0.
"""

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privgate.errors import SubjectError
from privgate.subject.data import TrainingData
from privgate.subject.domain import Domain

#: values an application form would offer; declared here, never read off the training set
CATEGORIES: dict[str, tuple[str, ...]] = {
    "workclass": (
        "",
        "Federal-gov",
        "Local-gov",
        "Never-worked",
        "Private",
        "Self-emp-inc",
        "Self-emp-not-inc",
        "State-gov",
        "Without-pay",
    ),
    "marital_status": (
        "Divorced",
        "Married-AF-spouse",
        "Married-civ-spouse",
        "Married-spouse-absent",
        "Never-married",
        "Separated",
        "Widowed",
    ),
    "occupation": (
        "",
        "Adm-clerical",
        "Armed-Forces",
        "Craft-repair",
        "Exec-managerial",
        "Farming-fishing",
        "Handlers-cleaners",
        "Machine-op-inspct",
        "Other-service",
        "Priv-house-serv",
        "Prof-specialty",
        "Protective-serv",
        "Sales",
        "Tech-support",
        "Transport-moving",
    ),
    "relationship": ("Husband", "Not-in-family", "Other-relative", "Own-child", "Unmarried", "Wife"),
    "race": ("Amer-Indian-Eskimo", "Asian-Pac-Islander", "Black", "Other", "White"),
    "sex": ("Female", "Male"),
    "native_country": (
        "",
        "Cambodia",
        "Canada",
        "China",
        "Columbia",
        "Cuba",
        "Dominican-Republic",
        "Ecuador",
        "El-Salvador",
        "England",
        "France",
        "Germany",
        "Greece",
        "Guatemala",
        "Haiti",
        "Holand-Netherlands",
        "Honduras",
        "Hong",
        "Hungary",
        "India",
        "Iran",
        "Ireland",
        "Italy",
        "Jamaica",
        "Japan",
        "Laos",
        "Mexico",
        "Nicaragua",
        "Outlying-US(Guam-USVI-etc)",
        "Peru",
        "Philippines",
        "Poland",
        "Portugal",
        "Puerto-Rico",
        "Scotland",
        "South",
        "Taiwan",
        "Thailand",
        "Trinadad&Tobago",
        "United-States",
        "Vietnam",
        "Yugoslavia",
    ),
}
#: lower ends of the bins of numeric columns, also declared
BINS: dict[str, tuple[float, ...]] = {
    "age": (25, 35, 45, 55, 65, 75),
    "education_num": (5, 8, 9, 10, 11, 13, 14, 15),
    "hours_per_week": (20, 35, 41, 50, 60),
    "capital_gain": (1, 5000, 10000),
    "capital_loss": (1,),
}
COLUMNS = (*CATEGORIES, *BINS)
SIZES = tuple([len(v) for v in CATEGORIES.values()] + [len(v) + 1 for v in BINS.values()])


def sample_path() -> Path:
    """Return where the sample lies: inside an installed package, or in the checkout."""
    here = Path(__file__).resolve().parent
    for path in (here / "adult-sample.csv", here.parents[1] / "examples" / "adult" / "adult-sample.csv"):
        if path.is_file():
            return path
    raise SubjectError("the Adult sample is not installed; reinstall privgate, or run from a checkout")


def codes(rows: list[dict[str, str]]) -> NDArray[np.int64]:
    """Return category codes of shape (n, 12), int64, one column a feature of ``COLUMNS``."""
    columns = [[values.index(row[name]) for row in rows] for name, values in CATEGORIES.items()]
    columns += [list(np.digitize([float(row[name]) for row in rows], edges)) for name, edges in BINS.items()]
    return np.array(columns, dtype=np.int64).T


def load() -> TrainingData:
    """Return 1,000 training records and 1,000 candidates with the declared category domain."""
    with sample_path().open(encoding="utf-8", newline="") as f:
        rows = list(csv.DictReader(f))
    X = codes(rows)
    y = np.array([row["income"] for row in rows])
    ids = np.array([row["record"] for row in rows])
    return TrainingData(
        X[:1000], y[:1000], ids=ids[:1000], candidates=(X[1000:], y[1000:]), domain=Domain(categories=SIZES)
    )
