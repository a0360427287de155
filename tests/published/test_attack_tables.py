"""Yeom et al. (2020), Table 1, and Shokri et al. (2017), Table II: comparable published figures are met."""

from pathlib import Path

import pytest

from papers import run

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def rows(tables):
    return [{r.what: r for r in t.rows} for t in tables]


def test_one_query_is_as_precise_as_shadow_models_where_nothing_is_overfitted(tmp_path):
    digits, noisy = rows(run("yeom-table1", tmp_path, None, print))

    # MNIST 0.505 and 0.517; digits has 1,797 records: standard error of a precision 0.5 over 1,500 calls is 0.013
    for name in ("yeom_threshold", "shokri"):
        row = digits[f"{name}: precision"]
        assert row.obtained == pytest.approx(row.published, abs=3 * 0.013)
    assert noisy["shokri: AUC"].obtained > digits["shokri: AUC"].obtained


def test_shadow_models_on_other_peoples_data(shared_data):
    folder: Path = shared_data("location30.npz").parent
    shared_data("adult.csv.gz")
    location, adult = rows(run("shokri-table2", folder, None, print))

    # Adult: 20,000 records, standard error 0.004; published 0.503
    assert adult["attack precision"].obtained == pytest.approx(0.503, abs=4 * 0.004)
    assert adult["training accuracy"].obtained == pytest.approx(0.848, abs=0.01)
    # Location: the published 0.678 is against a service's model; a network of ours leaks more, with the same recall
    assert location["attack precision"].obtained >= 0.678
    assert location["attack recall"].obtained == pytest.approx(0.98, abs=0.02)
