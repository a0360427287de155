"""The guide for contributors is followed once for each kind of thing it names, in a copy of the tree."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
GUIDE = (ROOT / ".github/CONTRIBUTING.md").read_text()
PARTS = ("privgate", "tests", "policies", "examples", "docs", ".github", "README.md", "Makefile", "pyproject.toml")
#: written by the command that the guide names, by nobody's hand
SCHEMA = "privgate/schemas/policy-v1.json"
#: at most so many files are touched for one new thing to keep the laws
MOST_FILES = 3


@dataclass(frozen=True)
class Row:
    """One row of the guide's table."""

    kind: str
    like: str
    catalogues: tuple[str, ...]
    instances: str
    laws: str

    @classmethod
    def of(cls, kind: str, *cells: str) -> "Row":
        """Return the row of these cells; a cell names one file or several."""
        like, catalogues, instances, laws = (tuple(re.findall(r"`([^`]+)`", cell)) or ("",) for cell in cells)
        return cls(kind, like[0], catalogues, instances[0], laws[0])


ROWS = {
    cells[0]: Row.of(*cells)
    for line in GUIDE.splitlines()
    if line.count("|") == 6
    and len(cells := [c.strip() for c in line.strip("|").split("|")]) == 5
    and cells[0].isidentifier()
}


class Copy:
    """A copy of the tree in which one thing called ``novelty`` is added."""

    def __init__(self, root: Path, row: Row) -> None:
        root.mkdir()
        self.root, self.row = root, row
        self.touched: set[str] = set()
        for name in PARTS:
            source = ROOT / name
            ignore = shutil.ignore_patterns("__pycache__", "results.md", "*.png")
            (shutil.copytree if source.is_dir() else shutil.copy)(
                source, root / name, **({"ignore": ignore} if source.is_dir() else {})
            )

    def write(self, name: str, *changes: tuple[str, str], to: str = "") -> None:
        """Write a file with every change made exactly once, under its own or another name."""
        text = (self.root / name).read_text()
        for old, new in changes:
            assert text.count(old) == 1, (name, old, text.count(old))
            text = text.replace(old, new)
        (self.root / (to or name)).write_text(text)
        self.touched.add(to or name)

    @property
    def file(self) -> str:
        """The file of the new thing: beside the row's model, or where several stand in one file."""
        return self.row.like if self.row.kind == "certificate" else str(Path(self.row.like).with_stem("novelty"))

    def append(self, name: str, text: str) -> None:
        """Write more at the end of a file."""
        path = self.root / name
        path.write_text(path.read_text() + text)
        self.touched.add(name)

    def add(self, *changes: tuple[str, str]) -> None:
        """Write the row's model file under the new name."""
        self.write(self.row.like, *changes, to=self.file)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run python in the copy, which comes before any installed privgate."""
        environment = {**os.environ, "PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root, env=environment, capture_output=True, text=True, timeout=540, check=False,
        )  # fmt: skip

    def pytest(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run tests of the copy."""
        return self.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments)

    def laws(self, *more: str) -> subprocess.CompletedProcess[str]:
        """Run the row's laws for what was added."""
        return self.pytest(self.row.laws, *more, "-k", CHOSEN.get(self.row.kind, "novelty"))


def before(anchor: str, line: str) -> tuple[str, str]:
    """Return the change that puts a line before another one."""
    return anchor, f"{line}\n{' ' * (len(anchor) - len(anchor.lstrip()))}{anchor.lstrip()}"


def attack(copy: Copy) -> None:
    copy.add(("class LiraOnline(", "class Novelty("), ('name = "lira_online"', 'name = "novelty"'))
    copy.write(
        copy.row.catalogues[0],
        before(
            "from privgate.membership.attacks.quantile import",
            "from privgate.membership.attacks.novelty import Novelty",
        ),
        before("    LiraOnline(),", "    Novelty(),"),
    )
    copy.write(copy.row.instances, before('    "lira_online", ', '    "novelty",'))


#: the theorem of a model that answers every question with the shares of labels: a design
THEOREM = """

def _novelty(case: Case, held: Float) -> Float:
    counts, lost = case.array("counts", 1, "i"), case.array("lost", 2, "i")
    every((bool((lost.sum(axis=1) == held).all()), "labels and records differ"))
    without = (counts - lost) / (counts.sum() - held)[:, None]
    return np.asarray(np.abs(np.log(counts / counts.sum()) - np.log(without)).max(axis=1))


DESIGNS["novelty"] = _novelty
"""
#: who proposes its cases
PROPOSER = """class Novelty(SmoothedNeighborsCertificate):
    \"""Every question is answered with the shares of labels, which are counted with and without a person.\"""

    name = "novelty"
    source = "elementary"

    def unfit(self, subject: Subject) -> str:
        return applies.refusal(subject, "DummyClassifier")

    def every_data_set(self, subject: Subject) -> float:
        del subject
        return float("inf")

    def design(self, subject: Subject, units: Index) -> Case:
        unit, rows = unit_rows(subject, units)
        lost = np.zeros((len(units), len(subject.classes)), dtype=np.int64)
        np.add.at(lost, (unit, subject.label_codes[rows]), 1)
        counts = np.bincount(subject.label_codes, minlength=len(subject.classes))
        arrays = {"held": lost.sum(axis=1), "counts": counts, "lost": lost}
        return Case("construction", "any", {"design": "novelty"}, arrays)


"""
INSTANCE = """def novelty(rng):
    X, y = rng.integers(0, 3, (12, 2)), np.arange(12) % 3
    from sklearn.dummy import DummyClassifier

    return Instance(Subject.local(Recipe(DummyClassifier()), TrainingData(X, y)), X, complete=True)


"""


def certificate(copy: Copy) -> None:
    copy.append(copy.row.like, THEOREM)
    copy.write(
        copy.row.catalogues[0],
        ("import vanishing\n", "import unit_rows, vanishing\n"),
        before("ALL: dict[str, Certificate] = {", PROPOSER.rstrip() + "\n\n"),
        ("(*theorems.ALL, Smoothed", "(*theorems.ALL, Novelty(), Smoothed"),
    )
    copy.write(
        copy.row.instances,
        before("FAMILIES = {", INSTANCE.rstrip() + "\n\n"),
        before('    "smoothed_neighbors": neighbors,', '    "novelty": novelty,'),
    )


def engine(copy: Copy) -> None:
    copy.add(("class GaussianNb(", "class Novelty("), ('name = "gaussian_nb"', 'name = "novelty"'),
             ("ENGINE = GaussianNb()", "ENGINE = Novelty()"))  # fmt: skip
    copy.write(
        copy.row.catalogues[0],
        ("categorical, gaussian, tokens", "categorical, gaussian, novelty, tokens"),
        before("    gaussian.ENGINE,", "    novelty.ENGINE,"),
    )
    copy.write(
        copy.row.instances,
        before('    ("gaussian_nb", GaussianNB(var_smoothing=0.1)', '    ("novelty", GaussianNB(), normal, 1e-7),'),
    )


def rule(copy: Copy) -> None:
    copy.add(
        ("class AttackAdvantage(", "class Novelty("),
        ('"""The rule ``attack_advantage`` limits', '"""The rule ``novelty`` limits'),
        ("Request: ``attack_advantage(", "Request: ``novelty("),
        ("    - metric: attack_advantage", "    - metric: novelty"),
        ('Metric(\n    "attack_advantage"', 'Metric(\n    "novelty"'),
        ('Literal["attack_advantage"] = "attack_advantage"', 'Literal["novelty"] = "novelty"'),
    )
    copy.write(
        copy.row.catalogues[0],
        before("from privgate.policy.rules.pdtp import", "from privgate.policy.rules.novelty import Novelty"),
        before("    AttackTpr,", "    Novelty,"),
    )
    copy.write(
        copy.row.catalogues[1],
        before('    "attack_advantage":', '    "novelty": "privgate.membership.attack_measures:advantage",'),
    )
    made = copy.run("-m", "privgate", "policy", "schema", "--output", SCHEMA)
    assert made.returncode == 0, made.stderr
    assert '"novelty"' in (copy.root / SCHEMA).read_text()


def metric(copy: Copy) -> None:
    copy.add()
    copy.write(copy.row.catalogues[0], ("privacy_claims.deletion_measure:measure", "privacy_claims.novelty:measure"))


def command(copy: Copy) -> None:
    copy.add(("def doctor(", "def novelty("))
    copy.write(copy.row.catalogues[0], before('    "doctor": (', '    "novelty": ("novelty", "Something new."),'))


ADD = {f.__name__: f for f in (attack, certificate, engine, rule, metric, command)}
#: what of the laws speaks about the new thing, where not its name
CHOSEN = {"metric": "measured and deletion_capacity", "certificate": "novelty or room"}
#: other tests that whoever adds something must not have to change; a number that is measured comes with its rule
HOUSE = ("tests/test_house.py",)
BESIDE = {"rule": (*HOUSE, "tests/policy/test_broken_policies.py"), "metric": HOUSE}
#: what is broken to see that the laws notice
BROKEN = {
    "attack": ("return lambda target: log_ratio(", "return lambda target: 0 * log_ratio("),
    "certificate": ("np.log(without)).max(", "np.log(without)).min("),
    "engine": ("return full, rest", "return full, rest + 1e-3 * unit[:, None]"),
    "rule": ('reaches="0 (guessing) to 1 (all members flagged, nobody else)"', 'reaches=""'),
    "metric": ("def measure(", "def measured("),
    "command": ("@click.command()\n", ""),
}


@pytest.fixture
def copy(tmp_path, request):
    return Copy(tmp_path / "tree", ROWS[request.param])


def test_the_guide_has_a_row_for_every_kind():
    assert set(ROWS) == set(ADD)
    assert f"`privgate policy schema --output {SCHEMA}`" in GUIDE


@pytest.mark.parametrize("copy", ROWS, indirect=True)
def test_following_the_guide_touches_few_files(copy):
    """Also where the laws do not run: an anchor that is gone is a guide that nobody followed."""
    ADD[copy.row.kind](copy)

    assert len(copy.touched) <= MOST_FILES
    named = {copy.file, *copy.row.catalogues, copy.row.instances}
    assert copy.touched <= named
    done = copy.run("-m", "ruff", "check", "--ignore", "D,E501", "--no-cache", *copy.touched)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("copy", ROWS, indirect=True)
def test_following_the_guide_is_enough(copy):
    ADD[copy.row.kind](copy)

    for done in (copy.laws(), copy.pytest(*BESIDE.get(copy.row.kind, HOUSE))):
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
        assert re.search(r"\d+ passed", done.stdout)

    copy.write(copy.file, BROKEN[copy.row.kind])
    assert re.search(r"\d+ failed", copy.laws("-x").stdout)
