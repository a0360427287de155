"""The public names, and how cheap they are to import."""

import pydoc
import subprocess
import sys

import privgate


def test_all_names_are_sorted_importable_and_documented():
    assert list(privgate.HOMES) == sorted(privgate.HOMES) == dir(privgate)
    assert len(pydoc.render_doc(privgate).splitlines()) <= 70  # a screen; every page below it is asked for by name
    for name in privgate.HOMES:
        assert getattr(privgate, name).__doc__, name


def test_an_unknown_name_is_an_attribute_error():
    import pytest

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = privgate.nothing


def test_importing_privgate_loads_nothing_heavy():
    # these cost the time that importing takes
    heavy = ["mlflow", "pandas", "sklearn", "scipy", "torch", "matplotlib"]
    heavy += ["great_expectations", "joblib", "pydantic", "click"]
    code = f"import privgate, sys; print([m for m in {heavy!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_recipe_data_and_subject_are_described_without_the_registry():
    code = (
        "import sys, numpy as np\n"
        "from privgate import Recipe, TrainingData, Subject\n"
        "def fit(X, y, *, seed): ...\n"
        "TrainingData(np.zeros((3, 1)), [0, 1, 1]).digest\n"
        "print('mlflow' in sys.modules, 'sklearn' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "False"]
