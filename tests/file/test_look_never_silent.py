"""Ways to hide records from the look that once passed for nothing: each is found, or the file is unknown."""

import bz2
import io
import json
import pickle
import zipfile
import zlib

import numpy as np
import pytest

from privgate.file import look, readers

RNG = np.random.default_rng(5)
X = RNG.normal(size=(200, 5))
#: bytes that are no numbers
SWAPPED = bytes(b ^ 85 for b in X.tobytes())
WHOLE = RNG.integers(0, 1 << 20, size=(200, 5))


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


def with_one_huge():
    made = X.copy()
    made[0, 2] = 1e300
    return made


def told(begin, end):
    return {"dtype": "F64", "shape": [(end - begin) // 8], "data_offsets": [begin, end]}


def tensors(header):
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + bytes(24) + SWAPPED + bytes(24)


# name -> (content of a file, the records)
HIDDEN = {
    "one cell of 1e300": (saved(with_one_huge().ravel()[3:]), with_one_huge()),
    "one cell of 1e300, as bytes": (b"\1\2\3" + with_one_huge().tobytes(), with_one_huge()),
    "behind a stream of bz2": (bz2.compress(b"a") + SWAPPED, X),
    "behind a stream of zlib": (zlib.compress(b"a") + SWAPPED, X),
    "behind an array": (saved(np.zeros(3)) + SWAPPED, X),
    "under no tensor": (tensors({"a": told(0, 24), "b": told(24 + len(SWAPPED), 48 + len(SWAPPED))}), X),
    "behind all tensors": (tensors({"a": told(0, 24)}), X),
    "bytes of each record": (pickle.dumps([r.tobytes() for r in X]), X),
    "swapped bytes of each record": (pickle.dumps([r.astype(">f4").tobytes() for r in X]), X),
    "a small file of each record": (archive(**{f"r{k}": r.tobytes() for k, r in enumerate(X)}), X),
    "array of byte strings": (saved(X.view("V8")), X),
    "array of letters": (saved(X.astype("U32")), X),
    "a text of each number": (pickle.dumps([[str(v) for v in r] for r in X.tolist()]), X),
    "texts of whole numbers": (pickle.dumps([str(v) for v in WHOLE.ravel()]), WHOLE.astype(float)),
    "among other rows": (saved(np.concatenate([X, RNG.normal(size=(350, 5))])), X),
    "among other rows, columns permuted": (saved(np.concatenate([X[:, ::-1], RNG.normal(size=(350, 5))])), X),
    "among many other rows": (pickle.dumps(np.concatenate([X[:20], RNG.normal(size=(9000, 5))])), X),
}


@pytest.mark.parametrize("way", HIDDEN)
def test_a_hidden_record_is_found_or_the_file_is_unknown(way):
    content, records = HIDDEN[way]
    sight = look.find_records(readers.read_bytes(content, "model.bin"), records)
    assert sight.least or sight.may_hold or sight.unread


@pytest.mark.parametrize("name", ["xgboost.bin", "xgboost.core.Booster.x", "x_builtin_type"])
@pytest.mark.parametrize("content", [b"abc" + X.astype(">f8").tobytes(), SWAPPED])
def test_a_file_is_not_what_it_is_called(name, content):
    assert look.find_records(readers.read_bytes(content, name), X).unread


def test_one_record_that_is_no_whole_number_hides_no_others():
    records = RNG.integers(0, 1 << 20, size=(200, 5)).astype(float)
    records[7, 2] += 0.5
    assert look.find_records(readers.read_bytes(saved(records.astype(np.int64)), "m"), records).least == 199
