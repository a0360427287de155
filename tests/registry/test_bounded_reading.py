"""Whatever others wrote as training data, sources or folders is read within limits, or refused in one sentence."""

import contextlib
import gzip
import io
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from privgate import digest
from privgate.documents import DocumentError, limited
from privgate.errors import PrivgateError, SubjectError, UsageError
from privgate.registry import load, training_data
from privgate.registry.stored_files import FolderFiles
from privgate.subject import storing
from privgate.subject.data import TrainingData


def source(path, form="csv", **options):
    columns = {"target": "y", "ids": None, "groups": None, "drop": []}
    about = {"uri": str(path), "format": form, "columns": columns, "candidates": None}
    return {**about, "options": options, "domain": None, "sensitive": []}


def read(reference, folder):
    """Read as check and signer do."""
    return training_data.read(None, {"digest": "sha256:" + "0" * 64, **reference}, folder, tracking_uri=None)


def packed(content):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", content)
    return made.getvalue()


BOMB = b"x,y\n" + b"1,2\n" * 40_000_000
FILES = {
    "gzip": ("a.csv.gz", lambda p: p.write_bytes(gzip.compress(BOMB, 1)), {"compression": "gzip"}),
    "zip": ("a.csv", lambda p: p.write_bytes(packed(BOMB)), {"compression": "zip"}),
    "a million columns": ("a.csv", lambda p: p.write_text(",".join(map(str, range(2_000_000))) + "\n"), {}),
    "no text": ("a.csv", lambda p: p.write_bytes(b"\xff\xfe\x00" * 100), {}),
    "quotes": ("a.csv", lambda p: p.write_text('x,y\n"' + "a" * 100_000), {}),
    "codec": ("a.csv", lambda p: p.write_text("x,y\n1,2\n"), {"encoding": "no such"}),
    "huge integer": ("a.csv", lambda p: p.write_text("x,y\n1," + "9" * 100_000 + "\n"), {"dtype": "int64"}),
    "no parquet": ("a.parquet", lambda p: p.write_bytes(b"PAR1" + b"\x00" * 100 + b"PAR1"), {}),
    "parquet": ("a.parquet", lambda p: pd.DataFrame({"x": np.zeros(100_000_000), "y": 1}).to_parquet(p), {}),
}


@pytest.mark.quick(2)
@pytest.mark.attack("23 data that never end or need all memory", "check, sign", "one sentence")
@pytest.mark.parametrize("name", FILES)
def test_a_file_of_data_is_one_sentence_within_its_limits(name, tmp_path, monkeypatch):
    monkeypatch.setenv(limited.MEMORY, "0.3")
    monkeypatch.setenv(limited.SECONDS, "10")
    file, write, options = FILES[name]
    write(tmp_path / file)
    form = Path(file).suffix[1:].replace("gz", "csv")
    began = time.monotonic()
    with pytest.raises(PrivgateError) as caught:
        read({"kind": "file", "source": source(tmp_path / file, form, **options)}, tmp_path / "data")
    assert time.monotonic() - began < 15
    assert caught.value.exit_code == 4
    assert "\n" not in str(caught.value)
    if name in {"gzip", "zip", "parquet"}:
        assert "PRIVGATE_READ_MEMORY" in str(caught.value) or "memory" in str(caught.value)


@pytest.mark.attack("23 a regular expression that never ends", "check", "refused")
@pytest.mark.parametrize("option", [{"sep": "(a+)+$"}, {"sep": ["a"]}, {"sep": ""}, {"compression": {"method": "tar"}},
                                    {"engine": "python"}, {"converters": {}}, {"storage_options": {}}])  # fmt: skip
def test_what_runs_or_may_never_end_is_no_option(option, tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n" + "a" * 40 + "b,1\n")
    with pytest.raises(SubjectError, match=r"use a loader of your own"):
        read({"kind": "file", "source": source(tmp_path / "a.csv", **option)}, tmp_path / "data")


def claims_to_be_huge(path):
    with path.open("wb") as f:
        np.lib.format.write_array_header_1_0(f, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})


STORED = {
    "array": ("X.npy", claims_to_be_huge),
    "no zip": ("X.npz", lambda p: p.write_bytes(b"PK\x03\x04" + b"\x00" * 99)),
    "sparse": ("X.npz", lambda p: sp.save_npz(p, sp.csr_matrix((np.zeros(1), (np.zeros(1), [0])), shape=(10**8, 3)))),
    "nested": ("X.json", lambda p: p.write_text("[" * 1_000_000)),
    "number": ("X.json", lambda p: p.write_text("[" + "9" * 1_000_000 + "]")),
    "texts": ("X.json", lambda p: p.write_text(json.dumps(["a"] * 20_000_000))),
    "pickle": ("X.npy", lambda p: np.save(p, np.array([{}], dtype=object), allow_pickle=True)),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", STORED)
def test_stored_data_are_one_sentence_within_their_limits(name, tmp_path, monkeypatch):
    monkeypatch.setenv(limited.MEMORY, "0.3")
    monkeypatch.setenv(limited.SECONDS, "10")
    file, write = STORED[name]
    TrainingData(np.zeros((4, 1)), np.arange(4) % 2).save(tmp_path / "d")
    write(tmp_path / "d" / file)
    index = json.loads((tmp_path / "d/data.json").read_text())
    index["files"]["X"] = file
    (tmp_path / "d/data.json").write_text(json.dumps(index))
    if file != "X.npy":
        (tmp_path / "d/X.npy").unlink()
    uri = (tmp_path / "d").as_uri()
    began = time.monotonic()
    with pytest.raises(SubjectError) as caught:
        read({"kind": "uri", "uri": uri, "files": digest.of_files(tmp_path / "d")}, tmp_path / "data")
    assert time.monotonic() - began < 15
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda: time.sleep(60), r"took too long.*may raise either"),
        (lambda: bytearray(1 << 30), r"0\.25 GiB \(PRIVGATE_READ_MEMORY\).*took too much memory"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "its reader ended with -11"),
        (lambda: os._exit(0), "within"),
        (lambda: {}["key"], "cannot be read: 'key'"),
        (threading.Lock, "its reader ended with 1"),
        (lambda: sys.exit("x"), "its reader ended with 1"),
    ],
)
def test_a_reader_that_ends_otherwise_is_one_sentence(act, says, monkeypatch):
    monkeypatch.setenv(limited.MEMORY, "0.25")
    monkeypatch.setenv(limited.SECONDS, "1")
    with pytest.raises(SubjectError, match=says):
        limited.apart(act, "the thing")


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "much"])
def test_limits_are_positive_numbers(value, monkeypatch):
    monkeypatch.setenv(limited.MEMORY, value)
    with pytest.raises(UsageError, match="no positive number"):
        limited.apart(dict, "x")


def test_what_is_read_is_the_same_as_in_this_process(tmp_path):
    frame = pd.DataFrame({"a": [1, 2, 3, 4], "b": ["x", None, "z", "w"], "c": pd.Categorical(list("xyxy")), "y": 0.5})
    frame.to_parquet(tmp_path / "a.parquet")
    here = TrainingData.from_source(source(tmp_path / "a.parquet", "parquet"))
    apart = read({"kind": "file", "source": source(tmp_path / "a.parquet", "parquet"), "digest": here.digest}, tmp_path)
    pd.testing.assert_frame_equal(here.X, apart.X)
    assert storing.difference(here.X, apart.X) == ""
    assert (here.order, here.source) == (apart.order, apart.source)
    array = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    again = limited.apart(lambda: array, "x")
    assert again.flags.f_contiguous
    again[0, 0] = 7.0  # as one's own


@pytest.mark.attack("23 a reader that outlives who waits for it", "any", "ended")
def test_what_is_read_needs_no_room_on_a_disk_nor_in_small_shared_memory(monkeypatch):
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Path("/dev/full").open("r+b"))  # noqa: SIM115  the reader closes it
    assert limited.apart(lambda: np.ones(100_000), "the data").sum() == 100_000


def test_what_another_thread_holds_does_not_stop_a_reader(monkeypatch):
    class Held:
        """A stream on which another thread wrote while this process was forked."""

        def write(self, _):
            threading.Event().wait()

    def read():
        warnings.warn("odd", stacklevel=1)
        logging.getLogger("pandas").error("odd")
        return 7

    handler = logging.StreamHandler(Held())
    monkeypatch.setattr(sys, "stderr", Held())
    monkeypatch.setattr(logging.getLogger("pandas"), "handlers", [handler])
    monkeypatch.setenv(limited.SECONDS, "3")
    warnings.simplefilter("always")
    assert limited.apart(read, "the data") == 7


def test_a_reader_ends_with_the_process_that_waits_for_it(tmp_path):
    code = (
        "import os, sys, time; from pathlib import Path; from privgate.documents import limited\n"
        "def act():\n    Path(sys.argv[1]).write_text(str(os.getpid()))\n    time.sleep(600)\n"
        "limited.apart(act, 'x')\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "pid")])
    end = time.monotonic() + 30
    while not ((tmp_path / "pid").is_file() and (tmp_path / "pid").read_text()):
        assert time.monotonic() < end
        time.sleep(0.05)
    child = int((tmp_path / "pid").read_text())
    parent.kill()
    parent.wait()
    stat = Path(f"/proc/{child}/stat")
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.attack("23 folders within folders", "any", "refused")
def test_folders_within_folders_are_refused(tmp_path):
    here = Path.cwd()
    try:  # by steps: the whole path is longer than the system takes at once
        os.chdir(tmp_path)
        for _ in range(1_500):
            Path("d").mkdir()
            os.chdir("d")
    finally:
        os.chdir(here)
    try:
        with pytest.raises(DocumentError, match="more than 64 deep"):
            digest.of_files(tmp_path)
        with pytest.raises(SubjectError, match="more than 64 deep"):
            FolderFiles(tmp_path).names()
    finally:
        subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)  # Python's own way recurses


@pytest.mark.attack("23 sources that break parsers", "check, sign", "one sentence")
@pytest.mark.parametrize("text", ["-" * 200_000 + "1", "(" * 5_000, "x = " + "+".join(["a"] * 50_000), "\0"])
def test_sources_that_break_parsers_are_a_sentence_or_parsed(text, tmp_path, monkeypatch):
    monkeypatch.setenv(limited.MEMORY, "0.5")
    (tmp_path / "privgate/src").mkdir(parents=True)
    (tmp_path / "privgate/src/a.py").write_text(text)
    files = digest.of_files(tmp_path / "privgate/src")
    refused = pytest.raises(SubjectError, match="the recipe's sources cannot be read")
    with refused if text.startswith("-") else contextlib.nullcontext():
        load.sources_of(tmp_path, {"sources": {"folder": "privgate/src", "files": files}})
