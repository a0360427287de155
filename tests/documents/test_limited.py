"""What others wrote is read within the operator's time and memory, and every trouble is one sentence."""

import time

import numpy as np
import pytest

from privgate.documents import limited
from privgate.errors import SubjectError, UsageError


def raising():
    raise ValueError("row 3 is short")


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (raising, "the data cannot be read: row 3 is short"),
        (lambda: np.ones(2**27).sum(), r"cannot be read within 0.3 GiB \(PRIVGATE_READ_MEMORY\)"),
        (lambda: time.sleep(30), "cannot be read within"),
    ],
)
def test_trouble_is_one_sentence(read, said, monkeypatch):
    monkeypatch.setenv(limited.MEMORY, "0.3")
    monkeypatch.setenv(limited.SECONDS, "2")
    with pytest.raises(SubjectError, match=said):
        limited.apart(read, "the data")


def test_what_is_read_comes_back_and_a_wrong_setting_is_named(monkeypatch):
    assert limited.apart(lambda: np.ones(100_000), "the data").sum() == 100_000
    monkeypatch.setenv(limited.SECONDS, "soon")
    with pytest.raises(UsageError, match=f"{limited.SECONDS} is 'soon'"):
        limited.apart(dict, "the data")
