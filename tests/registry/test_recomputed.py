"""Cases of a check: they come out again, and one changed byte is refused."""

import json
import shutil
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import hypergeom
from sklearn.linear_model import LogisticRegression

from privgate import Domain, Fleet, Policy, Recipe, Subject, TrainingData, cases, evaluate, report
from privgate.cases import Kept, Yes, recompute
from privgate.errors import DigestMismatchError, ExitCode, SubjectError
from privgate.kernel import Case

#: the registered model answers otherwise than the recipe's, at some question
REGISTERED = {"name": "reproduces", "detail": {"from_registered_model_elsewhere_nats": 1.0}}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (60, 3))
    y = (X[:, 0] + rng.normal(size=60) > 0).astype(int)
    data = TrainingData(X, y, domain=Domain(box=[(-1, 1)] * 3), one_record_each=True)
    recipe = Recipe(LogisticRegression(C=0.1, solver="newton-cholesky", tol=1e-8), seed=1)
    with Fleet(ledger="none", jobs=1) as fleet:
        verdict = evaluate(Policy.load("dtp-1"), Subject.local(recipe, data), fleet=fleet)
    place = tmp_path_factory.mktemp("written")
    report.write(verdict, place, hash_key=b"k" * 32)
    return place


@pytest.fixture
def folder(written, tmp_path):
    return shutil.copytree(written, tmp_path / "out")


def told(folder):
    return json.loads((folder / "report.json").read_text())


def forge(folder, document, kept, **note):
    """Write cases, and name them in the report with digests and intervals, as whoever can write both would."""
    cases.write(folder / cases.FILE, kept)
    for noted, k in zip(document["evidence"]["influence"]["cases"], kept, strict=True):
        noted |= {"digest": k.digest(), "high": float(k.high.max()), "low": float(k.low.max()), **note}
    return document


def test_a_yes_comes_out_again(folder):
    assert recompute(told(folder), folder) == [
        f"dtp: the kernel's limits come to {told(folder)['findings'][-1]['high']:.4g} again, at most 1 is allowed"
    ]
    assert (folder / cases.FILE).stat().st_mode == (folder / "records.parquet").stat().st_mode


@pytest.mark.parametrize("name", ["X", "label", "person", "penalty", "allowed", "box", "at", "factor", "moves"])
def test_one_changed_byte_of_a_datum_or_a_certificate_is_refused(folder, name):
    (kept,) = cases.read(folder / cases.FILE)
    bent = kept.case.arrays[name].copy()
    bent.view(np.uint8).reshape(-1)[0] ^= 1  # the last bit of one number
    cases.write(folder / cases.FILE, [replace(kept, case=replace(kept.case, arrays={**kept.case.arrays, name: bent}))])
    with pytest.raises(DigestMismatchError, match="is not the one that was judged"):
        recompute(told(folder), folder)


@pytest.mark.parametrize(
    ("where", "value", "says"),
    [
        (("findings", -1, "limit"), 0.001, "'dtp' approved, but the kernel's limits come to"),
        (("findings", -1, "high"), 0.001, "rule 'dtp' was judged by 0.001"),
        (("findings", -1, "outcome"), "failed", "no rule of the report approved by a certificate"),
        (("evidence", "influence", "cases", 0, "high"), 0.001, "the report says 0.001"),
        (("evidence", "influence", "cases"), [], "names no case"),
        (("evidence", "subject", "n_units"), 12, "more people than the report"),
        (("evidence", "subject", "n_units"), 400, "kernel's limits come to inf"),
        (("evidence", "subject", "n_units"), 0, "the report is about 0 people"),
        (("evidence", "subject", "n_units"), 10**15, "can be recomputed"),
        (("evidence", "subject", "n_units"), "many", "report.json cannot be recomputed"),
        (("evidence", "preconditions"), [REGISTERED], "kernel's limits come to 1."),
        (("evidence", "measurements"), None, "report.json cannot be recomputed"),
    ],
)
def test_a_changed_limit_is_refused(folder, where, value, says):
    document = told(folder)
    place = document
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    with pytest.raises(SubjectError, match=says) as refused:
        recompute(document, folder)
    assert refused.value.exit_code is ExitCode.SUBJECT


def set_flag(place):
    raw = bytearray(place.read_bytes())
    raw[raw.rfind(b"PK\x01\x02") + 8] |= 1
    place.write_bytes(raw)


def write_short(place, shape=b"{}"):
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("head.npy", np.lib.format.magic(1, 0) + len(shape).to_bytes(2, "little") + shape)


BOMB = str({"descr": "<f8", "fortran_order": False, "shape": (1 << 60,)}).encode()
SPOILT = {
    "absent": lambda place: place.unlink(),
    "text": lambda place: place.write_text("cases"),
    "pickle": lambda place: np.savez(place, head=np.array([{}], dtype=object)),
    "texts": lambda place: np.savez(place, **{**np.load(place), "case0": np.array(["x"])}),
    "many": lambda place: np.savez(place, **{f"case{k}": np.zeros(1) for k in range(2_001)}),
    # what it takes would be known only when it is read
    "packed": lambda place: np.savez_compressed(place, **np.load(place)),
    "secret": set_flag,
    "short": write_short,
    "bomb": lambda place: write_short(place, BOMB),
    "twice": lambda place: cases.write(place, [replace(k, units=0 * k.units) for k in cases.read(place)]),
}  # fmt: skip


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_file_that_is_no_file_of_cases_is_refused_in_a_sentence(folder, spoil):
    spoil(folder / cases.FILE)
    with pytest.raises(SubjectError, match=r"cannot be read|is no file of cases"):
        recompute(told(folder), folder)


def test_with_digests_made_again_what_is_no_yes_and_what_the_file_states_are_not_believed(folder):
    (kept,) = cases.read(folder / cases.FILE)
    for other, says in (
        (replace(kept, case=replace(kept.case, scope="own")), "limits nobody's change of any answer"),
        (replace(kept, case=Case("sample", "any", {})), "limits nobody's change of any answer"),
        (replace(kept, high=0 * kept.high, low=0 * kept.low), "the kernel says"),
    ):
        with pytest.raises(DigestMismatchError, match=says):
            recompute(forge(folder, told(folder), [other]), folder)


@pytest.mark.parametrize("family", cases.GONE)
def test_a_case_of_a_theorem_that_went_is_named_and_is_no_tampering(folder, family):
    gone = [replace(k, case=replace(k.case, family=family)) for k in cases.read(folder / cases.FILE)]
    with pytest.raises(SubjectError) as refused:
        recompute(forge(folder, told(folder), gone, family=family), folder)
    assert type(refused.value) is SubjectError
    said = f"cases of '{family}', the theorem about {cases.GONE[family]}, which went with 0.1.0, the last version"
    assert said in str(refused.value)
    assert "share-1 or release-1, or train it in privgate.models.Sharded" in str(refused.value)


def test_of_a_sample_whoever_has_no_case_counts_as_above():
    upper = np.where(np.arange(80) < 14, 0.5, np.inf)
    most = lambda k, m: max(M for M in range(81) if hypergeom.cdf(k, 80, M, m) > 0.05) / 80
    number = lambda n, **options: Yes("dtp", options, 1.0, 1.0, drawn=n).aggregated(upper, 14)
    shares = [number(n, aggregate="share_above", threshold=1.0, sample=20) for n in (0, 20, 80)]
    assert shares == [most(0, 14), most(6, 20), 66 / 80]
    assert [number(n, aggregate="quantile", q=0.5) for n in (0, 80)] == [0.5, np.inf]


def test_of_seeds_the_worst_counts_and_of_theorems_the_best():
    def kept(theorem, seed, *high):
        values = np.array(high)
        return Kept(Case("squares", "any"), np.arange(len(values)), 0 * values, values, theorem, seed)

    made = [kept("a", 0, 1.0, 5.0), kept("a", 0, 3.0, 2.0), kept("a", 1, 0.5, 4.0), kept("b", 0, 2.0)]
    assert cases.upper(made, 3).tolist() == [1.0, 4.0, np.inf]
    assert cases.needed([*made, kept("a", 0, 9.0, 9.0)], 3) == (made[0], made[1], made[2])
    assert np.isinf(cases.upper([kept("a", 1, 0.5)], 1)).all()  # of the first seed nothing is known
