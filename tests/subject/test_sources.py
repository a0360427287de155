"""Source snapshots: what is collected, and how it is imported again."""

import subprocess
import sys
import textwrap

import pytest

from privgate.errors import SubjectError
from privgate.subject import sources


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A package with relative imports, a lazy import and a module that must not be collected."""
    root = tmp_path / "project"
    write(
        root,
        {
            "pg_shop/__init__.py": "VERSION = 1\n",
            "pg_shop/train.py": """
                import numpy as np
                from . import scale
                from .deep.model import Model

                def fit(X, y, *, seed):
                    from pg_shop import late
                    return Model(scale.FACTOR * late.OFFSET)
            """,
            "pg_shop/scale.py": "FACTOR = 3\n",
            "pg_shop/late.py": "OFFSET = 7\n",
            "pg_shop/deep/__init__.py": "",
            "pg_shop/deep/model.py": "from .. import scale\nclass Model:\n    def __init__(self, v): self.v = v\n",
            "pg_shop/unused.py": "raise RuntimeError('collected or imported by mistake')\n",
        },
    )
    monkeypatch.syspath_prepend(str(root))
    yield root
    for name in [m for m in sys.modules if m.startswith("pg_shop")]:
        del sys.modules[name]


def test_a_package_is_collected_with_its_relative_and_lazy_imports_and_nothing_else(project):
    found = sources.collect(["pg_shop.train:fit"])
    names = ("__init__", "deep/__init__", "deep/model", "late", "scale", "train")
    assert sorted(found) == [f"pg_shop/{name}.py" for name in names]
    assert not [m for m in sys.modules if m.startswith("pg_shop")]  # nothing was imported
    assert sources.imported_names(found) == {"numpy"}
    assert sources.collect(["sklearn.naive_bayes:CategoricalNB", "json:loads", "numpy:log1p"]) == {}


def test_the_snapshot_runs_beside_a_changed_checkout(project, tmp_path):
    snapshot = tmp_path / "snapshot"
    sources.write(sources.collect(["pg_shop.train:fit"]), snapshot)
    write(project, {"pg_shop/scale.py": "FACTOR = 100\n", "pg_shop/late.py": "OFFSET = 100\n"})

    import pg_shop.scale  # the checkout's own module is loaded first

    fit = sources.resolve("pg_shop.train:fit", snapshot)

    assert fit(None, None, seed=0).v == 21  # both the module's import and the one inside the function
    assert sys.modules["pg_shop.scale"] is pg_shop.scale
    assert pg_shop.scale.FACTOR == 100
    assert str(snapshot) not in sys.path


def test_a_missing_name_says_so(project, tmp_path):
    snapshot = tmp_path / "snapshot"
    sources.write(sources.collect(["pg_shop.train:fit"]), snapshot)
    with pytest.raises(SubjectError, match="has no 'nothing'"):
        sources.resolve("pg_shop.train:nothing", snapshot)
    with pytest.raises(SubjectError, match="cannot be imported"):
        sources.resolve("pg_shop.absent:fit", snapshot)


@pytest.mark.parametrize(
    "name", ["../evil.py", "/etc/evil.py", "a/../../evil.py", "a\\evil.py", "C:evil.py", "", "a//b"]
)
def test_a_hostile_path_is_refused_before_anything_is_written(name, tmp_path):
    with pytest.raises(SubjectError, match="plain relative path"):
        sources.write({"fine.py": b"", name: b"x"}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


SCRIPT = """
import json

def fit(X, y, *, seed):
    return None

if __name__ == "__main__":
    from privgate import Recipe
    recipe = Recipe(fit, seed=1)
    print(json.dumps([recipe.payload["fit"], sorted(recipe.snapshot)]))
"""


@pytest.mark.parametrize(
    ("name", "command", "recorded"),
    [
        ("01-train.v2.py", ["01-train.v2.py"], '["01_train_v2:fit", ["01_train_v2.py"]]'),
        ("pg_pkg/train.py", ["-m", "pg_pkg.train"], '["pg_pkg.train:fit", ["pg_pkg/train.py"]]'),
    ],
)
def test_a_script_is_recorded_under_its_file_name_and_a_module_under_its_own(tmp_path, name, command, recorded):
    write(tmp_path, {name: SCRIPT})
    done = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=250, check=True
    )
    assert done.stdout.strip() == recorded


def test_a_function_typed_into_an_interpreter_is_told_where_to_go():
    code = "from privgate import Recipe\ndef f(X, y, *, seed): pass\nRecipe(f).digest"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=False)
    assert "move it to a module" in done.stderr
