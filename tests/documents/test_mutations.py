"""Thousands of mutated documents of every format: one sentence, exit code 2 or 4, quickly, and no forged pass."""

import importlib.util
import random
import resource
import sys
import time
import traceback
from pathlib import Path

import pytest

from privgate.errors import ExitCode, PrivgateError
from privgate.evidence import Request

SECONDS, MEGABYTES = 1.0, 100


def load_formats():
    spec = importlib.util.spec_from_file_location("document_formats", Path(__file__).with_name("formats.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


formats = load_formats()


def memory():
    """Return the largest memory of this process so far, in MiB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def answer(made, content):
    """Return (what was answered or what went wrong, whether it went wrong)."""
    try:
        approved = made.read(content)
    except PrivgateError as exc:
        said = str(exc)
        fine = exc.exit_code in {ExitCode.USAGE, ExitCode.SUBJECT} and said.strip() and len(said) < 20_000
        return f"{type(exc).__name__}: {said}", not fine
    except Exception:  # noqa: BLE001  that is what is looked for
        return traceback.format_exc(), True
    return "forged pass" if approved else "read", bool(approved)


def timed(made, content):
    """Return (seconds of processor, answer)."""
    began = time.process_time()
    given = answer(made, content)
    return time.process_time() - began, given


def hunt(folder, count, seed, drawn):
    """Mutate ``count`` times, each format of which a page is drawn ``drawn`` times.

    Returns (what went wrong, slowest as (seconds of processor, format, input, answer), how many were refused, MiB).
    """
    made = formats.formats(folder)
    for one in made:  # libraries load, and the example is read
        answer(one, one.example)
    slow = sum(one.slow for one in made)
    fast = -(-(count - slow * drawn) // (len(made) - slow))
    wrong, slowest, refused, before = [], (0.0, "", b"", ""), 0, memory()
    for one in made:
        rng = random.Random(f"{seed} {one.name}")
        for _ in range(drawn if one.slow else fast):
            content = formats.mutated(one, rng)
            took, (said, bad) = timed(one, content)
            if took >= SECONDS:  # a page is drawn, on a busy machine: what counts is how much longer than the example's
                took = min(took, timed(one, content)[0]) - timed(one, one.example)[0]
            slowest = max(slowest, (took, one.name, content[:200], said[:200]))
            refused += said not in {"read", "forged pass"}
            if bad:
                wrong.append((one.name, content[:300], said))
    return wrong, slowest, refused, memory() - before


def check(found, count):
    wrong, slowest, refused, grown = found
    print(f"\n{count} mutations, {refused} refused, {grown:.0f} MiB; slowest {slowest[0]:.3f} s: {slowest[1:]}")
    kinds = {said.strip()[-400:]: (name, content) for name, content, said in wrong}
    told = "\n\n".join(f"{name}: {content!r}\n{said}" for said, (name, content) in list(kinds.items())[:12])
    assert not wrong, f"{len(wrong)} of {count} went wrong\n{told}"
    assert slowest[0] < SECONDS, slowest
    assert grown < MEGABYTES
    assert refused > count / 3  # the mutations do harm


def test_mutated_documents_are_refused_in_one_sentence(tmp_path):
    check(hunt(tmp_path, 1_000, "first", 4), 1_000)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_more_mutated_documents_are_refused_in_one_sentence(tmp_path):
    check(hunt(tmp_path, 20_000, "many", 250), 20_000)


@pytest.mark.parametrize("payload", [{}, {"metric": "pdtp"}, {"options": {}}, {"metric": 1, "options": {}}])
def test_what_is_no_request_is_said_in_a_way_that_reading_a_report_understands(payload):
    with pytest.raises(ValueError, match="names its metric and its options"):
        Request.from_payload(payload)


def test_options_may_be_called_anything():
    made = Request.from_payload({"metric": "pdtp", "options": {"metric": 1, "cls": 2}})
    assert made.options == (("cls", 2), ("metric", 1))


def test_examples_are_read(tmp_path):
    """A format whose example is refused would show nothing."""
    for one in formats.formats(tmp_path):
        said, bad = answer(one, one.example)
        assert not bad, (one.name, said)
        expected = {"trust store": "signed by no trusted key", "statement": "is failed", "signed verdict": "is failed"}
        expected["recipe"] = "PRIVGATE_LOADERS"
        assert expected.get(one.name, "read") in said, (one.name, said)
