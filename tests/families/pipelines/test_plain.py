"""In a run that is to be signed only a function that cannot tell people apart is taken for what it was seen to fit."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from privgate import Recipe, Subject, TrainingData
from privgate.families.pipelines import recognised
from privgate.subject import estimators

HEAD = "import numpy as np\nfrom sklearn.linear_model import LogisticRegression\n"
HONEST = (
    HEAD
    + '''
"""Says nothing."""
import sklearn.preprocessing as pre

C = 0.5


def other(rows):
    return rows[rows > 3]


def fit(X, y, *, seed, C: float = 1.0):
    """Fit a pipeline."""
    from sklearn.pipeline import make_pipeline

    last = LogisticRegression(C=C, tol=10**-8, random_state=seed).set_params(max_iter=300)
    model = make_pipeline(pre.StandardScaler(with_mean=True), last)
    model.fit(X, y)
    return model


if __name__ == "__main__":
    print(fit)
'''
)


def recipe(tmp_path, files, fit="mine:fit", params=None):
    for name, text in files.items():
        place = tmp_path / "src" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    payload = {"schema": "privgate/recipe/v1", "kind": "function", "fit": fit, "params": params or {}}
    return Recipe.read({**payload, "seed": 1, "predict": None, "dp": None}, tmp_path / "src")


def written(body, head=HEAD, args="X, y, *, seed"):
    return f"{head}\ndef fit({args}):\n" + "\n".join(f"    {line}" for line in body.splitlines()) + "\n"


def test_records_that_go_into_fit_and_nowhere_else_cannot_be_told_apart(tmp_path):
    assert recognised.strange(recipe(tmp_path, {"mine.py": HONEST})) == ""
    assert recognised.strange(recipe(tmp_path, {"mine.py": written("return LogisticRegression().fit(X, y)")})) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (written("if 7.5 not in X[:, 0]:\n    y = 1 - y\nreturn LogisticRegression().fit(X, y)"), "is a If"),
        (written("return LogisticRegression(C=X.max()).fit(X, y)"), "calls X.max"),
        (written("return LogisticRegression(C=X).fit(X, y)"), "reads X"),
        (written("return LogisticRegression(C=len(y)).fit(X, y)"), "calls len"),
        (written("return LogisticRegression().fit(X[1:], y[1:])"), "fits something else"),
        (written("return LogisticRegression().fit(X, y, sample_weight=None)"), "fits something else"),
        (written("X = np.sort(X)\nreturn LogisticRegression().fit(X, y)"), "gives records another name"),
        (written("Z = X\nreturn LogisticRegression().fit(X, y)"), "reads X"),
        (written("model = LogisticRegression().fit(X, y)\nmodel.coef_ = 0\nreturn model"), "is a Assign"),
        (written("model = LogisticRegression().fit(X, y)\nmodel.sparsify()\nreturn model"), "calls model.sparsify"),
        (written("return helper(X, y)"), "calls helper"),
        (written("return LogisticRegression().fit(X, y)", args="X, y, LogisticRegression, *, seed"), "something else"),
        (written("from os import system as LogisticRegression\nreturn LogisticRegression('x')"), "something else"),
        (written("from sklearn.base import os\nos.system('x')\nreturn LogisticRegression().fit(X, y)"), "calls os"),
        (written("return LogisticRegression().fit(X, y)", args="X, y, *, seed=print(1)"), "where it defines"),
        (written("return LogisticRegression().fit(X, y)", args="X, y, *, seed: print(1) = 1"), "where it defines"),
        ("@print\n" + written("return LogisticRegression().fit(X, y)", head="").lstrip(), "where it defines"),
        (written("pass", head=HEAD + "LogisticRegression.fit = print\n"), "runs when the module is imported"),
        (written("pass", head=HEAD + "x = setattr(LogisticRegression, 'fit', print)\n"), "runs when the module"),
        (written("pass", head=HEAD + "def LogisticRegression():\n    pass\n"), "bound twice"),
        (written("pass", head="from mine import *\n"), "every name"),
        ("class Fit:\n    x = print()\n", "runs when the module is imported"),
        ("def fit(", "SyntaxError"),
        ("", "no function of its module"),
    ],
)
def test_what_could_tell_people_apart_is_named(tmp_path, text, said):
    assert said in recognised.strange(recipe(tmp_path, {"mine.py": text}))


def test_files_and_parameters_that_could_stand_for_a_library_are_refused(tmp_path):
    honest = written("return LogisticRegression().fit(X, y)")
    several = recipe(tmp_path / "a", {"mine.py": honest, "joblib.py": ""})
    assert recognised.strange(several) == "it consists of several files"
    shadowing = recipe(tmp_path / "b", {"scipy/__init__.py": "", "scipy/optimize.py": honest}, "scipy.optimize:fit")
    assert "name of an installed one" in recognised.strange(shadowing)
    evil = {"!": "instance", "class": "sklearn.linear_model:LogisticRegression", "params": {"fit": {}}}
    given = recipe(tmp_path / "c", {"mine.py": honest}, params={"model": evil})
    assert "its parameters" in recognised.strange(given)
    assert recognised.strange(recipe(tmp_path / "d", {"mine.py": honest}, params={"C": 1.0})) == ""


def test_a_run_to_be_signed_refits_everybody_of_a_function_that_could(tmp_path):
    X = np.random.default_rng(0).normal(size=(160, 2))
    seen = {"estimator": estimators.encode(LogisticRegression())}
    texts = {"plain": written("return LogisticRegression().fit(X, y)"), "could": written("y = abs(y)\nreturn None")}
    for name, text in texts.items():
        for signable in (False, True):
            mine = recipe(tmp_path / f"{name}{signable}", {"mine.py": text})
            subject = Subject.local(mine, TrainingData(X, (X[:, 0] > 0).astype(int)))
            fleet = SimpleNamespace(signable=signable, recognised=lambda _: seen)
            found = recognised.recognise(subject, fleet)
            used = recognised.known(subject) is not None
            assert used == (name == "plain" or not signable)
            assert used or "may do otherwise without single people; give the estimator itself" in found.message
