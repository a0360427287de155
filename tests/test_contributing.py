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
PARTS = ("privgate", "tests", "policies", "examples", "docs", ".github", "README.md", "pyproject.toml")
#: written by the command that the guide names, by nobody's hand
SCHEMA = "privgate/schemas/policy-v1.json"
#: at most so many files are touched for one new thing to keep the laws
MOST_FILES = 3


@dataclass(frozen=True)
class Row:
    """One row of the guide's table."""

    kind: str
    like: str
    catalogue: str
    instances: str
    laws: str


ROWS = {
    cells[0]: Row(*(c.strip("`") for c in cells))
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
        """The file of the new thing, beside the row's model."""
        return str(Path(self.row.like).with_stem("novelty"))

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

    def laws(self, chosen: str, *more: str) -> subprocess.CompletedProcess[str]:
        """Run the row's laws for what was added."""
        return self.run("-m", "pytest", "-q", "-p", "no:cacheprovider", self.row.laws, *more, "-k", chosen)


def before(anchor: str, line: str) -> tuple[str, str]:
    """Return the change that puts a line before another one."""
    return anchor, f"{line}\n{' ' * (len(anchor) - len(anchor.lstrip()))}{anchor.lstrip()}"


def attack(copy: Copy) -> None:
    copy.add(("class LiraOnline(", "class Novelty("), ('name = "lira_online"', 'name = "novelty"'))
    copy.write(
        copy.row.catalogue,
        before(
            "from privgate.membership.attacks.label_gap import",
            "from privgate.membership.attacks.novelty import Novelty",
        ),
        before("    LiraOnline(),", "    Novelty(),"),
    )
    copy.write(copy.row.instances, before('    "lira_online", ', '    "novelty",'))


def certificate(copy: Copy) -> None:
    copy.add(
        ("class SmoothedNeighborsCertificate(", "class Novelty("), ('name = "smoothed_neighbors"', 'name = "novelty"')
    )
    copy.write(
        copy.row.catalogue,
        before(
            "from privgate.families.sharded_members",
            "from privgate.families.novelty import Novelty",
        ),
        before("        SmoothedNeighborsCertificate(),", "        Novelty(),"),
    )
    copy.write(copy.row.instances, before('    "smoothed_neighbors": neighbors,', '    "novelty": neighbors,'))


def engine(copy: Copy) -> None:
    copy.add(("class GaussianNb(", "class Novelty("), ('name = "gaussian_nb"', 'name = "novelty"'),
             ("ENGINE = GaussianNb()", "ENGINE = Novelty()"))  # fmt: skip
    copy.write(
        copy.row.catalogue,
        (" complement, gaussian,", " complement, gaussian, novelty,"),
        before("    gaussian.ENGINE,", "    novelty.ENGINE,"),
    )
    copy.write(
        copy.row.instances,
        before('    ("gaussian_nb", GaussianNB(var', '    ("novelty", GaussianNB(), normal, 1e-7),'),
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
        copy.row.catalogue,
        before("from privgate.policy.rules.generalization_gap", "from privgate.policy.rules.novelty import Novelty"),
        before("    AttackTpr,", "    Novelty,"),
    )
    copy.write(
        "privgate/check/questions.py",
        before('    "attack_advantage":', '    "novelty": "privgate.membership.attack_measures:advantage",'),
    )
    made = copy.run("-m", "privgate", "policy", "schema", "--output", SCHEMA)
    assert made.returncode == 0, made.stderr
    assert '"novelty"' in (copy.root / SCHEMA).read_text()


def metric(copy: Copy) -> None:
    copy.add()
    copy.write(copy.row.catalogue, ("privacy_claims.deletion:measure", "privacy_claims.novelty:measure"))


def command(copy: Copy) -> None:
    copy.add(("def doctor(", "def novelty("))
    copy.write(copy.row.catalogue, before('    "doctor": (', '    "novelty": ("novelty", "Something new."),'))


ADD = {f.__name__: f for f in (attack, certificate, engine, rule, metric, command)}
#: what of the laws speaks about the new thing, where not its name
CHOSEN = {"metric": "measured and deletion_capacity", "certificate": "novelty or room"}
#: what is broken to see that the laws notice
BROKEN = {
    "attack": ("return lambda target: log_ratio(", "return lambda target: 0 * log_ratio("),
    "certificate": ("return Certified(upper, np.where(", "return Certified(0 * upper, np.where("),
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


@pytest.mark.quick(1)
@pytest.mark.parametrize("copy", ROWS, indirect=True)
def test_following_the_guide_is_enough(copy):
    ADD[copy.row.kind](copy)

    done = copy.laws(CHOSEN.get(copy.row.kind, "novelty"))

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert re.search(r"\d+ passed", done.stdout)
    assert len(copy.touched) <= MOST_FILES

    copy.write(copy.file, BROKEN[copy.row.kind])
    assert re.search(r"\d+ failed", copy.laws(CHOSEN.get(copy.row.kind, "novelty"), "-x").stdout)
