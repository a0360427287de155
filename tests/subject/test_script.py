"""What a script's or notebook's function reaches is recorded, and nothing of the work around it."""

import linecache
import sys
import textwrap
import types
from pathlib import Path

import pytest

from privgate.errors import SubjectError
from privgate.subject import sources
from privgate.subject.recipe import Recipe


@pytest.fixture
def as_main(monkeypatch, tmp_path):
    """Run a text as a script, or as cells of a notebook, and let it be ``__main__`` from now on."""

    def ran(*texts, file="train_it.py"):
        main = types.ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", main)
        for k, text in enumerate(texts):
            source, name = textwrap.dedent(text), f"<ipython-input-{k}-{id(main)}>"
            if file:
                name = str(tmp_path / file)
                main.__file__ = name
                (tmp_path / file).write_text(source)
            else:
                lines = source.splitlines(keepends=True)
                monkeypatch.setitem(linecache.cache, name, (len(source), None, lines, name))
            exec(compile(source, name, "exec"), vars(main))
        return main

    return ran


def again(main, tmp_path, *names):
    """Return what the names mean once they are imported from the snapshot, with nothing of the script around."""
    references = [f"{sources.main_module()}:{n}" for n in names]
    found = sources.collect(references)
    root = tmp_path / "snapshot"
    sources.write(found, root)
    sys.modules["__main__"] = types.ModuleType("__main__")
    return found, [sources.resolve(r, root) for r in references]


HEADS = """
    from __future__ import annotations
    import argparse, json, logging, os, random, sys, warnings
    import numpy as np
    import pandas as pd
    import sklearn.linear_model
    from pathlib import Path
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler as Scaler
    from numpy import log1p
    try:
        import no_such_library_here as fast
    except ImportError:
        fast = None

    warnings.filterwarnings("ignore")
    logging.basicConfig(level=logging.INFO)
    random.seed(0)
    np.random.seed(0)
    pd.set_option("display.width", 200)
    sys.path.append(".")
    SEED = int(os.environ.get("PG_SCRIPT_SEED", 7))
    HERE = Path(__file__).resolve().parent
    PLACES = {"table": [HERE / "table.csv"]}
    parser = argparse.ArgumentParser()
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("out"))
    args = parser.parse_args()
    logger = logging.getLogger(__name__)
    RUNS.append("script")
    X, y = np.zeros((4, 2)), [0, 1, 0, 1]
    model = LogisticRegression().fit(X, y)
    for step in range(2):
        total = step

    class Base:
        def scale(self, X):
            return Scaler().fit_transform(X)

    class Center(Base):
        factor: float = 2 * 1.5

    def helper(X):
        logger.debug("centred")
        return log1p(np.abs(Center().scale(X)))

    def fit(X, y, *, seed, C=float(args.depth)):
        assert fast is None
        made = sklearn.linear_model.LogisticRegression(C=C * SEED)
        made.places = args.out, PLACES["table"]
        return made.fit(helper(X), y)

    fit(X, y, seed=SEED)
    print(json.dumps({"trained": True}))
"""


def test_usual_heads_are_no_obstacle(as_main, tmp_path, monkeypatch, capsys):
    """Environment, command line and places of files are written as they are now."""
    monkeypatch.setenv("PG_SCRIPT_SEED", "11")
    monkeypatch.setattr("sys.argv", ["train_it.py", "--depth", "3"])
    runs = []
    monkeypatch.setattr("builtins.RUNS", runs, raising=False)
    main = as_main(HEADS)
    capsys.readouterr()
    monkeypatch.delenv("PG_SCRIPT_SEED")  # a worker's environment is scrubbed
    monkeypatch.setattr("sys.argv", ["worker"])

    found, (fit,) = again(main, tmp_path, "fit")

    assert sorted(found) == ["train_it.py"]
    text = found["train_it.py"].decode()
    assert "SEED = 11" in text
    for absent in ("parse_args", "RUNS", "json", "model =", "basicConfig", "seed(0)\nrandom", "warnings", "pandas"):
        assert absent not in text, text
    model = fit([[0.0, 1.0], [2.0, 3.0], [1.0, 0.0], [5.0, 6.0]], [0, 1, 0, 1], seed=0)
    assert model.get_params()["C"] == 33.0
    assert model.places == (Path("out"), [tmp_path / "table.csv"])
    assert runs == ["script"]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ("import pandas as pd\nTHING = pd.read_csv({csv!r})", r"uses THING \(a DataFrame, of line 3\)"),
        ("import re\nTHING = re.compile(open({csv!r}).read())", "hand it over as a parameter"),
        ("import re\nif __name__ == '__main__':\n    THING = re.compile('a')", "make it inside the function"),
        ("THING = list(range(20_000))", "a list of .* characters"),
    ],
)
def test_what_reads_or_cannot_be_written_is_refused(as_main, tmp_path, made, words):
    (tmp_path / "a.csv").write_text("1\n2\n")
    main = as_main("\n" + made.format(csv=str(tmp_path / "a.csv")) + "\ndef fit(X, y, *, seed):\n    return THING\n")
    main.unused = 1
    with pytest.raises(SubjectError, match=words):
        sources.collect(["train_it:fit"])
    with pytest.raises(SubjectError, match=words):  # where the recipe is made, before anything is trained or logged
        Recipe(main.fit, seed=1)


def test_modules_beside_the_script_come_with_it(as_main, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "pg_beside.py").write_text("def late():\n    return 4\n")
    (tmp_path / "pg_unused.py").write_text("")
    main = as_main("import pg_unused\nfrom pg_beside import late\ndef fit(X, y, *, seed):\n    return late()\n")
    found, (fit,) = again(main, tmp_path, "fit")
    assert sorted(found) == ["pg_beside.py", "train_it.py"]
    assert fit(None, None, seed=0) == 4


def test_functions_and_classes_of_a_notebook(as_main, tmp_path):
    main = as_main(
        "import numpy as np\nfrom sklearn.naive_bayes import GaussianNB\nSCALE = 2.0\n",
        "class Scaled(GaussianNB):\n    def fit(self, X, y):\n        return super().fit(np.asarray(X) * SCALE, y)\n",
        "SCALE = 3.0\ndef fit(X, y, *, seed):\n    return Scaled().fit(X, y)\n",
        file="",
    )
    found, (fit,) = again(main, tmp_path, "fit")
    assert sorted(found) == ["notebook_cells.py"]
    assert fit([[1.0], [2.0]], [0, 1], seed=0).theta_.ravel().tolist() == [3.0, 6.0]


def test_what_a_notebook_cannot_give_again_is_refused(as_main):
    as_main("import re\nPATTERN = re.compile('a')\ndef fit(X, y, *, seed):\n    return PATTERN\n", file="")
    with pytest.raises(SubjectError, match=r"uses PATTERN \(a Pattern\)"):
        sources.collect(["notebook_cells:fit"])


SHAPES = {
    "recursion": (
        """
        def even(n): return n == 0 or odd(n - 1)
        def odd(n): return n > 0 and even(n - 1)
        def fit(X, y, *, seed): return even(4)
        """,
        True,
    ),
    "decorator": (
        """
        import functools
        def traced(f):
            @functools.wraps(f)
            def call(*a, **k): return f(*a, **k) + STEP
            return call
        STEP = 2
        @traced
        def fit(X, y, *, seed): return 5
        """,
        7,
    ),
    "star": ("from math import *\ndef fit(X, y, *, seed): return floor(2.5)", 2),
    "counter": ("COUNT = 3\ndef fit(X, y, *, seed):\n    global COUNT\n    COUNT += 1\n    return COUNT", 4),
    "choice": (
        """
        import sys
        if sys.version_info > (3,):
            def helper(): return 1
        else:
            helper = None
        def fit(X, y, *, seed): return helper()
        """,
        1,
    ),
    "lambda": ("square = lambda v: v * v\ndef fit(X, y, *, seed): return square(3)", 9),
    "text": ("def fit(X, y, *, seed, text='''\n  kept\n'''): return text", "\n  kept\n"),
    "objects": (
        """
        import re
        from collections import namedtuple
        from dataclasses import dataclass
        from functools import partial
        Pair = namedtuple("Pair", "a b")
        TABLE = {"f": re.compile}
        @dataclass
        class Setup:
            depth: int = 3
        SETUP = Setup(5)
        double = partial(int.__mul__, 2)
        def fit(X, y, *, seed): return Pair(1, 2).b, sorted(TABLE), SETUP.depth, double(4)
        """,
        (2, ["f"], 5, 8),
    ),
}


@pytest.mark.parametrize(("text", "answer"), SHAPES.values(), ids=SHAPES)
def test_shapes_of_scripts(as_main, tmp_path, text, answer):
    _, (fit,) = again(as_main(text), tmp_path, "fit")
    assert fit(None, None, seed=0) == answer


@pytest.mark.parametrize("file", ["privgate", "mlflow", "json.py"])
def test_a_command_that_is_called_like_a_library_hides_no_module(as_main, tmp_path, file):
    main = as_main("def fit(X, y, *, seed):\n    import privgate, mlflow, json\n    return json\n", file=file)
    assert sources.collect(["numpy:log1p"]) == {}
    found, _ = again(main, tmp_path, "fit")
    assert list(found) == [f"{Path(file).stem}_script.py"]
