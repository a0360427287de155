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
from privgate.cases import Kept, Yes
from privgate.cases import recompute as again
from privgate.errors import DigestMismatchError, ExitCode, PrivgateError, SubjectError
from privgate.kernel import Case
from tests.kernel import fuzz_logistic as fuzz
from tests.kernel import problems_logistic as problems

KEY = b"k" * 32


#: the registered model answers otherwise than the recipe's, at some question
REGISTERED = {"name": "reproduces", "detail": {"from_registered_model_elsewhere_nats": 1.0}}


def people(n=60):
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (n, 3))
    return TrainingData(
        X, (X[:, 0] + rng.normal(size=n) > 0).astype(int), domain=Domain(box=[(-1, 1)] * 3), one_record_each=True
    )


@pytest.fixture(scope="module")
def judged():
    recipe = Recipe(LogisticRegression(C=0.1, solver="newton-cholesky", tol=1e-8), seed=1)
    with Fleet(ledger="none", jobs=1) as fleet:
        return evaluate(Policy.load("dtp-1"), Subject.local(recipe, people()), fleet=fleet)


@pytest.fixture(scope="module")
def written(judged, tmp_path_factory):
    place = tmp_path_factory.mktemp("written")
    report.write(judged, place, hash_key=KEY)
    return place


@pytest.fixture
def folder(written, tmp_path):
    return shutil.copytree(written, tmp_path / "out")


def told(folder):
    return json.loads((folder / "report.json").read_text())


def named_again(document, kept):
    """Return the report with digests and intervals of other cases, as whoever can write it would."""
    notes = document["evidence"]["influence"]["cases"]
    made = [{**n, "digest": k.digest(), "high": float(k.high.max())} for n, k in zip(notes, kept, strict=True)]
    for note, k in zip(made, kept, strict=True):
        note["low"] = float(k.low.max())
    document["evidence"]["influence"]["cases"] = made
    return document


def changed(kept, **arrays):
    return [replace(k, case=replace(k.case, arrays={**k.case.arrays, **arrays})) for k in kept]


def test_a_yes_comes_out_again(folder):
    assert again(told(folder), folder) == [
        f"dtp: the kernel's limits come to {told(folder)['findings'][-1]['high']:.4g} again, at most 1 is allowed"
    ]
    assert (folder / cases.FILE).stat().st_mode == (folder / "records.parquet").stat().st_mode


def bent(array):
    """Return an array with its last bit of one number turned."""
    made = array.copy()
    made.view(np.uint8).reshape(-1)[0] ^= 1
    return made


@pytest.mark.parametrize("name", ["X", "label", "person", "penalty", "allowed", "box", "at", "factor", "moves"])
def test_one_changed_byte_of_a_datum_or_a_certificate_is_refused(folder, name):
    kept = cases.read(folder / cases.FILE)
    cases.write(folder / cases.FILE, changed(kept, **{name: bent(kept[0].case.arrays[name])}))

    with pytest.raises(DigestMismatchError, match="is not the one that was judged"):
        again(told(folder), folder)


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
        again(document, folder)
    assert refused.value.exit_code is ExitCode.SUBJECT


@pytest.mark.parametrize("spoilt", ["absent", "text", "pickle", "bomb", "short", "twice", "packed", "secret"])
def test_a_file_that_is_no_file_of_cases_is_refused_in_a_sentence(folder, spoilt, monkeypatch):
    place = folder / cases.FILE
    if spoilt == "absent":
        place.unlink()
    elif spoilt == "text":
        place.write_text("cases")
    elif spoilt == "pickle":
        np.savez(place, head=np.array([{}], dtype=object))
    elif spoilt == "bomb":
        monkeypatch.setattr(cases, "_ARRAYS", 3)
    elif spoilt == "packed":  # what it takes would be known only when it is read
        arrays = dict(np.load(place))
        np.savez_compressed(place, **arrays)
    elif spoilt == "secret":
        raw = bytearray(place.read_bytes())
        raw[raw.rfind(b"PK\x01\x02") + 8] |= 1
        place.write_bytes(raw)
    elif spoilt == "short":
        with zipfile.ZipFile(place, "w") as archive:
            archive.writestr("head.npy", np.lib.format.magic(1, 0) + b"\x02\x00{}")
    else:
        kept = cases.read(place)
        cases.write(place, [replace(kept[0], units=0 * kept[0].units)])

    with pytest.raises(SubjectError, match=r"cannot be read|is no file of cases"):
        again(told(folder), folder)


def test_with_digests_made_again_a_cheating_certificate_holds_the_refit_or_is_refused(folder):
    document, seen, refused = told(folder), 0, 0
    rng = np.random.default_rng(11)
    s = problems.sample(rng, K=2)
    who = rng.permutation(s.people)[:4]
    _, true = fuzz.own_truth(s, who)
    asked = s.X[:, :-1] if s.intercept else s.X
    box = np.array([asked.min(axis=0), asked.max(axis=0)])  # who is asked about is among the questions
    document["evidence"]["subject"]["n_units"] = s.people
    for f in document["findings"]:
        f |= {"limit": 1e6, "high": 1e6}
    for name, certificate in fuzz.certificates(rng, s):
        nothing = np.zeros(s.people)
        made = Kept(s.case(certificate, asked="any", arrays={"box": box}), np.arange(s.people), nothing, nothing)
        try:
            made = made.judge_again()
            cases.write(folder / cases.FILE, [made])
            again(named_again(document, [made]), folder)
        except (ValueError, PrivgateError):
            refused += 1
            continue
        high = cases.upper([k.judge_again() for k in cases.read(folder / cases.FILE)], s.people)[who]
        assert (true <= high).all(), name
        seen += 1
    assert seen >= 5
    assert refused >= 3


def test_a_case_that_limits_nobodys_answers_is_no_yes(folder):
    """Digests made again: of own records alone, of a sample."""
    (kept,) = cases.read(folder / cases.FILE)
    for case in (replace(kept.case, asked="own"), Case("sample", "any", {})):
        other = replace(kept, case=case)
        cases.write(folder / cases.FILE, [other])
        with pytest.raises(DigestMismatchError, match="limits nobody's change of any answer"):
            again(named_again(told(folder), [other]), folder)


def test_of_a_sample_whoever_has_no_case_counts_as_above():
    options = {"aggregate": "share_above", "threshold": 1.0, "sample": 20}
    upper = np.where(np.arange(80) < 14, 0.5, np.inf)

    def most(k, m):
        return max(M for M in range(81) if hypergeom.cdf(k, 80, M, m) > 0.05) / 80

    shares = [Yes("dtp", options, 1.0, 1.0, drawn=n).aggregated(upper, 14) for n in (0, 20, 80)]
    assert shares == [most(0, 14), most(6, 20), 66 / 80]
    options = {"aggregate": "quantile", "q": 0.5}
    quantiles = [Yes("dtp", options, 1.0, 1.0, drawn=n).aggregated(upper, 14) for n in (0, 80)]
    assert quantiles == [0.5, np.inf]


def test_limits_that_the_file_states_are_not_believed(folder):
    kept = cases.read(folder / cases.FILE)
    lower = [replace(k, high=0 * k.high, low=0 * k.low) for k in kept]
    cases.write(folder / cases.FILE, lower)

    with pytest.raises(DigestMismatchError, match="the kernel says"):
        again(named_again(told(folder), lower), folder)


@pytest.mark.parametrize("family", cases.GONE)
def test_a_case_of_a_theorem_that_went_is_named_and_is_no_tampering(folder, family):
    document, kept = told(folder), cases.read(folder / cases.FILE)
    gone = [replace(k, case=replace(k.case, family=family)) for k in kept]
    cases.write(folder / cases.FILE, gone)
    document["evidence"]["influence"]["cases"][0] |= {"family": family, "digest": gone[0].digest()}

    with pytest.raises(SubjectError) as refused:
        again(document, folder)
    assert type(refused.value) is SubjectError
    said = f"cases of '{family}', the theorem about {cases.GONE[family]}, which went with 0.1.0, the last version"
    assert said in str(refused.value)
    assert "share-1 or release-1, or train it in privgate.models.Sharded" in str(refused.value)


def test_of_seeds_the_worst_counts_and_of_theorems_the_best():
    def kept(theorem, seed, *high):
        values = np.array(high)
        return Kept(Case("squares", "any"), np.arange(len(values)), 0 * values, values, theorem, seed)

    made = [kept("a", 0, 1.0, 5.0), kept("a", 0, 3.0, 2.0), kept("a", 1, 0.5, 4.0), kept("b", 0, 2.0)]

    assert cases.upper(made, 3).tolist() == [1.0, 4.0, np.inf]
    assert cases.needed([*made, kept("a", 0, 9.0, 9.0)], 3) == (made[0], made[1], made[2])
    assert np.isinf(cases.upper([kept("a", 1, 0.5)], 1)).all()  # of the first seed nothing is known
