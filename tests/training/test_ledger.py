"""The ledger gives back what was put in, or nothing; whatever happens to its files or beside them."""

import hashlib
import mmap
import multiprocessing
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from privgate.training.storage import LARGE

from privgate.errors import UsageError
from privgate.training import ledger as ledgers
from privgate.training.ledger import Ledger, Segment, build, sealing_key


def key(i):
    return hashlib.sha256(b"%d" % i).digest()


def fill(ledger, numbers):
    for i in numbers:
        ledger.write([(key(i), b"body %d" % i)])


def holds(ledger, numbers):
    return [bytes(b) == b"body %d" % i for i, b in zip(numbers, ledger.read([key(i) for i in numbers]), strict=True)]


def segments(folder):
    return sorted(folder.glob("*.seg"))


@given(st.dictionaries(st.integers(0, 40), st.binary(max_size=200), max_size=20))
def test_a_segment_gives_back_its_entries(entries):
    sealing = sealing_key(b"a secret of some length")
    segment = Segment(memoryview(build([(key(i), body) for i, body in entries.items()], sealing)))

    assert segment.count == len(entries)
    assert [bytes(b) for b in segment.bodies(range(len(entries)), sealing)] == list(entries.values())


@given(st.data())
def test_a_changed_byte_is_never_read_as_an_entry(data):
    sealing = sealing_key(b"x" * 16)
    bodies = [b"first body", b"second", b""]
    content = bytearray(build([(key(i), b) for i, b in enumerate(bodies)], sealing))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))

    try:
        segment = Segment(memoryview(bytes(content)))
    except ValueError:
        return
    for i in range(min(segment.count, 3)):
        found = next(segment.bodies([i], sealing))
        # the entry itself is intact, or it is not given out
        assert found is None or (segment.keys[i].tobytes(), bytes(found)) in [(key(j), b) for j, b in enumerate(bodies)]


def test_what_was_written_is_there_for_the_next_process(tmp_path):
    fill(Ledger(tmp_path), range(30))
    again = Ledger(tmp_path)

    assert all(holds(again, range(30)))
    assert again.find([key(3), key(99)]).tolist() == [True, False]
    assert len(again) == 30


def test_many_segments_become_one_and_lose_nothing(tmp_path):
    ledger = Ledger(tmp_path)
    fill(ledger, range(ledgers.MANY_SEGMENTS + 10))
    ledger.settle()

    assert len(segments(tmp_path)) == 1
    assert all(holds(ledger, range(ledgers.MANY_SEGMENTS + 10)))
    assert all(holds(Ledger(tmp_path), range(ledgers.MANY_SEGMENTS + 10)))


def test_a_long_run_merges_as_it_goes(tmp_path):
    ledger, most = Ledger(tmp_path), 0
    for begin in range(0, 3000, 10):
        for k in range(begin, begin + 10):
            fill(ledger, [k])
        most = max(most, len(list(tmp_path.glob("*.seg"))))

    assert most < ledgers.AT_ONCE + 2 * ledgers.MANY_SEGMENTS
    assert all(holds(ledger, range(3000)))
    assert all(holds(Ledger(tmp_path), range(3000)))


def test_large_entries_are_written_read_and_merged_one_at_a_time(tmp_path, monkeypatch):
    """Neither this process's own memory nor mapped pages that count as its memory hold them."""
    monkeypatch.setattr(ledgers, "MANY_SEGMENTS", 15)
    ledger, size = Ledger(tmp_path), 2 * LARGE
    pages = Path("/proc/self/statm")

    def of_files():
        return int(pages.read_text().split()[2]) * mmap.PAGESIZE if pages.exists() else 0

    before = of_files()
    tracemalloc.start()
    for i in range(16):
        ledger.write([(key(i), bytes([i]) * size)])
    assert all(ledger.read([key(i)])[0] == bytes([i]) * size for i in range(16))
    ledger.settle()
    assert len(segments(tmp_path)) == 1
    assert all(ledger.read([key(i)])[0] == bytes([i]) * size for i in range(16))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 4 * size
    assert of_files() - before < 4 * size


def test_a_merge_in_one_process_does_not_disturb_another(tmp_path):
    first = Ledger(tmp_path)
    fill(first, range(ledgers.MANY_SEGMENTS + 1))
    second = Ledger(tmp_path)
    fill(second, range(1000, 1010))
    first.settle()

    assert all(holds(second, range(ledgers.MANY_SEGMENTS + 1)))
    assert all(holds(Ledger(tmp_path), [*range(ledgers.MANY_SEGMENTS + 1), *range(1000, 1010)]))


def test_a_damaged_entry_is_noticed_and_written_anew(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.write([(key(i), b"body %d" % i) for i in range(3)])
    path = segments(tmp_path)[0]
    path.write_bytes(path.read_bytes().replace(b"body 1", b"body 7"))

    hurt = Ledger(tmp_path)
    assert [b is None for b in hurt.read([key(0), key(1), key(2)])] == [False, True, False]
    assert hurt.damaged == 1
    fill(hurt, [1])
    assert all(holds(hurt, range(3)))
    assert all(holds(Ledger(tmp_path), range(3)))


@pytest.mark.parametrize("content", [b"", b"PRIVGATE", b"nonsense" * 100])
def test_a_file_that_is_no_segment_is_counted_and_passed_over(tmp_path, content):
    fill(Ledger(tmp_path), [1])
    (tmp_path / "00000-foreign.seg").write_bytes(content)
    ledger = Ledger(tmp_path)

    assert ledger.damaged == 1
    assert all(holds(ledger, [1]))


def test_a_truncated_segment_gives_what_is_whole(tmp_path):
    Ledger(tmp_path).write([(key(i), b"body %d" % i) for i in range(5)])
    path = segments(tmp_path)[0]
    path.write_bytes(path.read_bytes()[:-3])
    ledger = Ledger(tmp_path)

    assert [b is not None for b in ledger.read([key(i) for i in range(5)])] == [True] * 4 + [False]


def test_an_unfinished_write_is_not_seen(tmp_path):
    (tmp_path / ".123.seg.abc.tmp").write_bytes(b"half")

    assert len(Ledger(tmp_path)) == 0


def test_entries_without_the_teams_secret_are_not_believed(tmp_path):
    fill(Ledger(tmp_path, secret=b"somebody else's secret"), [1])
    ledger = Ledger(tmp_path, secret=b"the team's own secret")

    assert ledger.read([key(1)]) == [None]
    assert ledger.damaged == 1


def test_an_entry_cannot_take_another_ones_place(tmp_path):
    ledger = Ledger(tmp_path, secret=b"the team's own secret")
    ledger.write([(key(1), b"body 1"), (key(2), b"body 2")])
    path = segments(tmp_path)[0]
    content = path.read_bytes()
    swapped = content.replace(key(1), b"\0" * 32).replace(key(2), key(1)).replace(b"\0" * 32, key(2))
    path.write_bytes(swapped)

    assert Ledger(tmp_path, secret=b"the team's own secret").read([key(1), key(2)]) == [None, None]


def test_a_shared_place_needs_a_secret_of_some_length(monkeypatch):
    monkeypatch.delenv("PRIVGATE_LEDGER_KEY", raising=False)
    with pytest.raises(UsageError, match="set PRIVGATE_LEDGER_KEY"):
        Ledger("memory://team")
    monkeypatch.setenv("PRIVGATE_LEDGER_KEY", "short")
    with pytest.raises(UsageError, match="5 bytes"):
        Ledger("memory://team")


def test_a_team_shares_a_ledger_behind_a_url(monkeypatch):
    monkeypatch.setenv("PRIVGATE_LEDGER_KEY", "0123456789abcdef")
    first = Ledger("memory://team/ledger")
    fill(first, range(ledgers.MANY_SEGMENTS))
    first.flush()

    assert all(holds(first, range(ledgers.MANY_SEGMENTS)))
    assert all(holds(Ledger("memory://team/ledger"), range(ledgers.MANY_SEGMENTS)))


def test_a_place_behind_a_url_that_only_renames_atomically_works_too(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVGATE_LEDGER_KEY", "0123456789abcdef")
    url = f"local://{tmp_path}/ledger"
    first = Ledger(url)
    fill(first, range(3))
    assert first.find([key(2), key(3)]).tolist() == [True, False]  # before it is written
    first.flush()

    assert all(holds(Ledger(url), range(3)))
    assert [p.suffix for p in (tmp_path / "ledger").iterdir()] == [".seg"]


def test_the_environment_names_the_place(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVGATE_LEDGER", str(tmp_path / "here"))
    fill(Ledger(), [1])

    assert segments(tmp_path / "here")
    assert (tmp_path / "here").stat().st_mode & 0o077 == 0


def test_arrays_are_kept_under_json_keys(tmp_path):
    table = np.arange(12.0).reshape(3, 4)
    Ledger(tmp_path).remember({"what": "counts", "version": 1}, table)

    np.testing.assert_array_equal(Ledger(tmp_path).array({"version": 1, "what": "counts"}), table)
    assert Ledger(tmp_path).array({"version": 2, "what": "counts"}) is None


def write_from_another_process(folder, start, stop):
    ledger = Ledger(folder)
    fill(ledger, range(start, stop))
    ledger.settle()


def test_two_processes_writing_and_merging_at_once_lose_nothing(tmp_path):
    context = multiprocessing.get_context("fork")
    several = [
        context.Process(target=write_from_another_process, args=(tmp_path, 200 * i, 200 * i + 200)) for i in range(4)
    ]
    for process in several:
        process.start()
    for process in several:
        process.join()

    assert all(holds(Ledger(tmp_path), range(800)))


def test_a_merge_takes_the_file_that_is_no_segment_away_and_no_other(tmp_path):
    (tmp_path / "00000-foreign.seg").write_bytes(b"nonsense")
    ledger = Ledger(tmp_path)
    fill(ledger, range(ledgers.MANY_SEGMENTS + 10))
    ledger.settle()

    assert len(segments(tmp_path)) == 1
    assert len(ledger) == ledgers.MANY_SEGMENTS + 10
    assert all(holds(Ledger(tmp_path), range(ledgers.MANY_SEGMENTS + 10)))


def test_keys_that_begin_alike_are_told_apart(tmp_path):
    keys = [b"the same" + bytes([i]) * 24 for i in range(4)]
    Ledger(tmp_path).write([(keys[1], b"one"), (keys[2], b"two")])
    ledger = Ledger(tmp_path)

    assert ledger.find(keys).tolist() == [False, True, True, False]
    assert [b and bytes(b) for b in ledger.read(keys)] == [None, b"one", b"two", None]
