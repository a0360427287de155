"""The figures of the papers: drawn again, checked against slow truths, and shown."""

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.naive_bayes import CategoricalNB

from papers import Row, Table, long_figures, thudi2022
from papers.pictures import Picture, Series

ROOT = Path(__file__).resolve().parents[2]
SHOWN = ROOT / "docs" / "images" / "papers"


def numbers(svg):
    """Return the coordinates of all paths."""
    return [float(v) for path in re.findall(r' d="([^"]+)"', svg) for v in re.findall(r"-?\d+\.?\d*", path)]


@pytest.fixture(scope="module")
def thudi():
    return {t.picture.name: t for t in thudi2022.run(Path(), None, print)}


@pytest.mark.parametrize("name", ["thudi-2", "thudi-6"])
def test_a_closed_form_is_drawn_again_as_it_is_shown(thudi, name, tmp_path):
    table = thudi[name]
    first = table.picture.write(tmp_path / "first", table.title).read_bytes()
    kept = Table.of(table.payload())

    assert kept.picture.write(tmp_path / "kept", kept.title).read_bytes() == first
    assert numbers(first.decode()) == pytest.approx(numbers((SHOWN / f"{name}.svg").read_text()), abs=0.02)


def test_the_page_shows_every_picture_and_every_picture_is_small():
    page = (ROOT / "docs" / "papers.md").read_text()
    pictures = {p.name for p in SHOWN.glob("*.svg")}

    assert set(re.findall(r"images/papers/([\w.-]+\.svg)", page)) == pictures
    assert all((SHOWN / p).stat().st_size < 40_000 for p in pictures)


def test_closed_forms_are_the_papers(thudi):
    for row in thudi["thudi-2"].rows:
        assert row.obtained == pytest.approx(row.due, abs=5e-5), row.what
    assert min(r.obtained for r in thudi["thudi-5"].rows) > 0
    for row in thudi["thudi-6"].rows:
        assert row.obtained == pytest.approx(float(row.note.split()[-1]), abs=1e-4), row.what
    assert [int(thudi2022.capacity(1.0, 0.001, rho)) for rho in (0.9, 0.5)] == [38, 255]
    accuracy, limit = thudi["thudi-4"].picture.series[1:]
    assert max(accuracy.y) <= limit.y[0]


@pytest.mark.parametrize("alpha", [1.0, 0.05])
def test_dtp_of_figure_6_is_what_refits_show(alpha):
    rng = np.random.default_rng(0)
    codes = np.column_stack([rng.integers(0, k, 60) for k in (5, 3, 2)])
    y = (rng.random(60) < 0.3).astype(np.int64)
    alive = rng.random(60) < 0.8
    each, place = long_figures.dtp(codes, y, alive, alpha)
    every = np.stack(np.meshgrid(*(np.arange(k) for k in codes.max(axis=0) + 1), indexing="ij"), -1).reshape(-1, 3)
    rows = np.flatnonzero(alive)

    def answers(kept):
        model = CategoricalNB(alpha=alpha, min_categories=codes.max(axis=0) + 1)
        return model.fit(codes[kept], y[kept]).predict_log_proba(every)

    whole = answers(rows)
    slow = [np.abs(whole - answers(rows[rows != row])).max() for row in rows]
    assert each[place] == pytest.approx(slow, abs=1e-9)


def test_images_are_drawn(tmp_path):
    picture = Picture("image", "", "", [Series("one", [], [0.0, 0.5, 0.5, 1.0], "image")])
    table = Table("an image", [Row("a", None, 1.0)], (), picture)

    assert "<image" in picture.write(tmp_path, table.title).read_text()
