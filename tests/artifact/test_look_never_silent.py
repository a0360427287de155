"""Ways to hide records from the look that once passed for nothing: each is found, or the file is unknown."""

import io
import json
import pickle
import zipfile

import numpy as np
import pytest

from privgate.artifact import file_bytes, look

RNG = np.random.default_rng(5)
X = RNG.normal(size=(200, 5))
SWAPPED = X.astype(">f8").tobytes()


def saved(A):
    made = io.BytesIO()
    np.save(made, A)
    return made.getvalue()


def archive(**members):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return made.getvalue()


def skops(module, file, content):
    told = {"__module__": module, "__class__": "Y", "file": file}
    return archive(**{"schema.json": json.dumps(told), file: content})


def with_one_huge():
    made = X.copy()
    made[0, 2] = 1e300
    return made


def beside(A):
    """Return rows of values of records, each column moved by as many as once was always done."""
    return np.column_stack([np.roll(c, -(7 * k + 1)) for k, c in enumerate(A.T)])


def fitting():
    """Return rows of which every value is its column's, and none is a record."""
    return np.column_stack([X[RNG.integers(0, 200, 110_000), j] for j in range(5)])


# name -> (content of a file, the records)
HIDDEN = {
    "a zip that calls records sklearn's": (skops("sklearn.x", "w.npy", saved(np.exp(X)[:150])), X),
    "a zip that calls bytes xgboost's": (skops("xgboost.core", "w.bin", b"abc" + SWAPPED), X),
    "one cell of 1e300": (saved(with_one_huge().ravel()[3:]), with_one_huge()),
    "one cell of 1e300, as bytes": (b"\1\2\3" + with_one_huge().tobytes(), with_one_huge()),
    "rows that are to look like chance": (saved(np.concatenate([X, beside(X)])), X),
    "rows that are to look like chance, flat": (saved(np.concatenate([X, beside(X)]).ravel()), X),
    "behind rows that fit": (saved(np.concatenate([fitting(), X]).ravel()), X),
}


@pytest.mark.parametrize("way", HIDDEN)
def test_a_hidden_record_is_found_or_the_file_is_unknown(way):
    content, records = HIDDEN[way]
    least, _, unknown = look.compared(file_bytes.of_bytes(content, "model.bin"), records)
    assert least or unknown


@pytest.mark.parametrize(
    "name", ["xgboost.bin", "xgboost.core.Booster.x", "x_builtin_type", "cloudpickle.cloudpickle._builtin_type"]
)
def test_a_file_is_not_what_it_is_called(name):
    for content in (b"abc" + SWAPPED, bytes(b ^ 85 for b in SWAPPED)):
        least, _, unknown = look.compared(file_bytes.of_bytes(content, name), X)
        assert least or unknown
    least, _, unknown = look.compared(file_bytes.of_bytes(saved(np.exp(X)[:150]), "sklearn.npy"), X)
    assert unknown


def test_one_record_that_is_no_whole_number_hides_no_others():
    records = RNG.integers(0, 1 << 20, size=(200, 5)).astype(float)
    records[7, 2] += 0.5
    assert look.compared(file_bytes.of_bytes(saved(records.astype(np.int64)), "m"), records)[0] == 199


@pytest.mark.parametrize("scales", [1, 7, 60])
def test_scales_that_are_left_out_are_told(scales):
    vectors = RNG.normal(size=(scales, 5)) + 3
    held = {"v": list(vectors), "w": RNG.permutation(X)[:100] * vectors[0] + vectors[-1] / 3}
    least, _, unknown = look.compared(file_bytes.of_bytes(pickle.dumps(held), "m"), X)
    assert least or unknown
