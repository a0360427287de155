"""``privgate guard serve`` as the process an operator starts, beside a real guarded server."""

import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from mlflow.entities.webhook import WebhookAction, WebhookEntity, WebhookEvent
from mlflow.webhooks.delivery import _generate_hmac_signature

from privgate import serve
from privgate.errors import PrivgateError, RegistryError, StatementError, UsageError
from privgate.guard.audit_log import AuditLog
from privgate.policy import Policy
from privgate.serve import TAG, CheckRequest, Job, Loop, Server
from tests.guard.store.served_process import SECRET, serving, until


@pytest.fixture
def registry(quiet, free_port):
    """A guarded registry without anything else: a reconciler attends to everything that asks."""
    quiet.free_port = free_port
    return quiet


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ("", "", 0)),
        (" dtp-1 , production ", ("dtp-1", "production", 0)),
        ("dtp-1,production;17", ("dtp-1", "production", 17)),
        ("dtp-1;host-1;1800000060.000;1799999000", ("dtp-1", "", 1799999000)),  # as version 0.1 wrote it
        *((text, None) for text in ("dtp-1;x", "dtp-1;x;y;z", ";;;;", "p;h;1;1.5", "p;\u00b2", "p;" + "9" * 5000)),
    ],
)
def test_a_request_is_read_and_written_again_or_means_nothing(text, parts):
    if parts is None:
        with pytest.raises(UsageError):
            CheckRequest.parse(text)
        return
    request = CheckRequest.parse(text)
    assert (request.policy, request.target, request.since) == parts
    assert CheckRequest.parse(request.text()) == request


def headers(delivery, stamp, body, secret=SECRET):
    """Sign as MLflow does, by its own function."""
    signature = _generate_hmac_signature(secret.decode(), delivery, str(stamp), body.decode())
    values = {"delivery-id": delivery, "timestamp": str(stamp), "signature": signature}
    return {f"x-mlflow-{name}": value for name, value in values.items()}


NOW, BODY = 1_800_000_000, b'{"entity": "model_version_tag"}'
GOOD = headers("d1", NOW, BODY)


@pytest.mark.parametrize(
    ("given", "body", "moment", "why"),
    [
        (GOOD, BODY, NOW, ""),
        (GOOD, BODY + b" ", NOW, "the signature is not valid"),
        ({**GOOD, "x-mlflow-delivery-id": "d2"}, BODY, NOW, "the signature is not valid"),
        ({**GOOD, "x-mlflow-timestamp": str(NOW + 1)}, BODY, NOW, "the signature is not valid"),
        (headers("d1", NOW, BODY, b"another"), BODY, NOW, "the signature is not valid"),
        ({k: v for k, v in GOOD.items() if "signature" not in k}, BODY, NOW, "the signature is not valid"),
        ({}, BODY, NOW, "no delivery id or timestamp"),
        (GOOD, BODY, NOW + serve.WINDOW + 1, "the timestamp is too old or ahead"),
        (GOOD, BODY, NOW - serve.WINDOW - 1, "the timestamp is too old or ahead"),
    ],
)
def test_only_fresh_signed_deliveries_count(given, body, moment, why):
    assert serve.refuse_delivery(SECRET, given, body, moment) == why


def test_a_loop_comes_back_when_something_is_due():
    looks = []
    Loop(lambda: looks.append(time.monotonic()) or 0.0, every=600.0).start()
    until(lambda: len(looks) >= 2, seconds=100)


# what one request needs


class Known(Server):
    """Work about a registry of which this is known; a command changes it as said, and ends with a code."""

    def __init__(self, folder, monkeypatch, *, sign=True, code=0, counts=False, result=None, held=0, after=()):
        words, client = "sign {uri} {nonce}" if sign else None, SimpleNamespace(tracking_uri="sqlite:////registry.db")
        audit = AuditLog(folder / "audit.jsonl")
        super().__init__(client, folder / "guard.yaml", {}, folder, ["--jobs=1"], words, audit=audit)
        self.has, self.ran = {"counts": counts, "result": result, "held": held}, []

        def child(words, log, seconds):
            self.ran.append(words)
            self.has |= dict(after)
            return code, "error: as it says"

        monkeypatch.setattr(serve, "run_command", child)

    def counts(self, guard, job):
        return self.has["counts"]

    def result(self, job):
        return self.has["result"]

    def _read_alias(self, job):
        return self.has["held"]

    def events(self):
        return [(e["event"], e["doing"]) for e in self.audit.lines()]


RUN, RELEASED = serve.run_command, {"counts": True, "held": 2}


def job(target="production"):
    return Job("credit", "2", Policy.load("dtp-1"), "dtp-1", target, 1)


@pytest.mark.parametrize(
    ("known", "target", "ran", "answered", "events"),
    [
        ({"after": RELEASED}, "production", "promote", True, ["asked", "approved", "released"]),
        ({"after": RELEASED, "result": True}, "production", "promote", True, ["asked", "approved", "released"]),
        ({"after": RELEASED, "counts": True}, "production", "promote", True, ["asked", "released"]),
        ({"code": 1}, "production", "promote", True, ["asked", "refused"]),
        ({"code": 5}, "production", "promote", True, ["asked", "refused"]),
        ({"code": 6, "sign": False}, "production", "promote", False, ["asked", "refused"]),
        ({"after": {"held": 3}}, "production", "promote", True, ["asked", "refused"]),  # a later one was released
        ({"counts": True, "held": 3}, "production", "", True, []),
        ({"result": True, "sign": False}, "production", "", False, []),  # somebody else signs
        ({"result": False}, "production", "", True, []),
        ({"counts": True}, None, "", True, []),
        ({"result": True}, None, "", True, []),
        ({}, None, "check", True, ["asked"]),  # without an alias nothing is signed
        ({"code": 1}, None, "check", True, ["asked", "refused"]),
    ],
)
def test_a_request_needs_one_command_or_none(tmp_path, monkeypatch, known, target, ran, answered, events):
    own = Known(tmp_path, monkeypatch, **known)
    assert own.answer(None, job(target)) is answered
    assert [words[0] for words in own.ran] == ([ran] if ran else [])
    assert [event for event, _ in own.events()] == events
    for words in own.ran:
        signing = {"--sign-command=sign {uri} {nonce}"} if known.get("sign", True) and ran == "promote" else set()
        assert {word for word in words if "sign-command" in word} == signing
        assert ("--forward-only" in words) == ("--to=production" in words) == (ran == "promote")


@pytest.mark.parametrize(
    ("known", "kind", "why"),
    [
        ({"code": 4}, RegistryError, "ended with 4: error: as it says"),  # a signer that refuses or is down
        ({"code": 3}, RegistryError, "ended with 3"),
        ({}, StatementError, "no statement counts"),  # it says that it ended well
        ({"after": {"held": 2}}, StatementError, "no statement counts"),
        ({"after": {"counts": True}}, StatementError, "no statement counts for @production"),
    ],
)
def test_nothing_but_a_statement_that_counts_is_an_approval(tmp_path, monkeypatch, known, kind, why):
    own = Known(tmp_path, monkeypatch, **known)
    with pytest.raises(kind, match=why):
        own.answer(None, job())
    assert own.events() == [("asked", "promote")]


def test_what_is_not_recorded_is_not_done(tmp_path, monkeypatch):
    own = Known(tmp_path, monkeypatch)
    own.audit.path.mkdir()
    with pytest.raises(PrivgateError, match="audit log"):
        own.answer(None, job())
    assert own.ran == []


@pytest.mark.parametrize("result", [True, None])
def test_only_who_asks_anew_loses_the_report_that_waits_for_a_signature(tmp_path, monkeypatch, result):
    report = tmp_path / "credit-2-dtp-1" / "report.json"
    report.parent.mkdir()
    report.touch()
    Known(tmp_path, monkeypatch, result=result, after=RELEASED).answer(None, job())
    assert report.exists() == (result is True)


def test_what_a_killed_server_began_is_done_by_the_next_one(tmp_path, monkeypatch):
    """All state is in the registry: the request is still there, and what lies in the folder stands in nobody's way."""
    killed = Known(tmp_path, monkeypatch)
    (out := tmp_path / "credit-2-dtp-1").mkdir()
    (out / "report.json").write_text('{"cut": "sho')
    monkeypatch.setattr(serve, "run_command", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        killed.answer(None, job())
    again = Known(tmp_path, monkeypatch, after=RELEASED)
    assert again.answer(None, job())
    assert [words[0] for words in again.ran] == ["promote"]
    assert [event for event, _ in again.events()] == ["asked", "asked", "approved", "released"]
    assert Known(tmp_path, monkeypatch, **RELEASED).answer(None, job())  # and nothing is left to do for a third


def test_a_command_past_its_clock_is_ended_and_not_approved(tmp_path, monkeypatch):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nsleep 600 & echo $! > $0.pid\nwait\n")
    program.chmod(0o700)
    own, began = Known(tmp_path, monkeypatch), time.monotonic()
    own.seconds = 1.0
    monkeypatch.setattr(serve.sys, "executable", str(program))
    monkeypatch.setattr(serve, "run_command", RUN)
    with pytest.raises(RegistryError, match=r"more than 1 s \(--check-seconds\) and was ended"):
        own.answer(None, job())
    assert time.monotonic() - began < 10
    until(lambda: gone(int(Path(f"{program}.pid").read_text())))


def test_health_notices_a_queue_that_does_not_move(tmp_path, monkeypatch):
    own, stuck = Known(tmp_path, monkeypatch), threading.Event()
    own.seconds = 10.0
    loop = Loop(lambda: stuck.wait(600), every=30.0)
    loop.start()
    routes = serve.make_application(own, loop, None).routes
    ask = next(route.endpoint for route in routes if getattr(route, "path", "") == "/health")
    assert ask().status_code == 200
    own.moved_on -= 10.0 + 30.0 + 301.0  # nothing was begun or done since
    assert (ask().status_code, ask().body) == (503, b"the queue does not move\n")
    own.moved_on = time.monotonic()
    assert ask().status_code == 200
    stuck.set()


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


# the process


def model(registry, name):
    """Register a version that dtp-1 approves, and that asks for it."""
    registry.log_recipe(name)
    registry.client.set_model_version_tag(name, "1", TAG, "dtp-1,production")


def tags(registry, name, version="1"):
    return dict(registry.client.get_model_version(name, version).tags)


def alias(registry, name):
    return dict(registry.client.get_registered_model(name).aliases).get("production")


@pytest.mark.boxed
@pytest.mark.server
@pytest.mark.timeout(1200)  # a whole check as a process of its own, beside whatever else runs
def test_what_asks_is_checked_signed_and_moved_and_a_strange_wish_is_not(registry, name, tmp_path):
    approved, unknown = name + "-good", name + "-strange"
    model(registry, approved)
    strange, ask = registry.log(unknown), registry.client.set_model_version_tag
    ask(unknown, strange, TAG, "/etc/passwd,production")
    audit = AuditLog(tmp_path / "audit.jsonl")
    options = ("--every", "600", "--audit-log", str(audit.path), "--", "--jobs", "1")
    with serving(registry, tmp_path / "s", *options) as served:
        until(lambda: TAG not in tags(registry, approved), served, seconds=600)
        assert alias(registry, approved) == "1"
        problem = "this server checks by dtp-1"
        until(lambda: problem in tags(registry, unknown, strange).get("privgate.problem", ""), served)
        until(lambda: served.get("/health") == (200, "ok\n"), served)

        # a webhook wakes it, long before its time; a forged one does not
        ask(approved, "1", TAG, "dtp-1")  # has a statement: no second check
        body = b"{}"
        assert served.get("/webhook", body, headers("f", int(time.time()), body, b"forged"))[0] == 403
        assert TAG in tags(registry, approved)
        assert served.get("/webhook", body, headers("d", int(time.time()), body))[0] == 202
        until(lambda: TAG not in tags(registry, approved), served)

        # and so does MLflow itself: it sends and signs this one
        event = WebhookEvent(WebhookEntity.MODEL_VERSION_TAG, WebhookAction.SET)
        hook = registry.client.create_webhook("wake", served.address + "/webhook", [event], secret=SECRET.decode())
        ask(approved, "1", TAG, "dtp-1")
        until(lambda: TAG not in tags(registry, approved), served)
        registry.client.delete_webhook(hook.webhook_id)
    lines = list(audit.lines())
    good, odd = ([(e["event"], e["doing"]) for e in lines if e["model"] == n] for n in (approved, unknown))
    assert good == [("asked", "promote"), ("approved", "sign"), ("released", "promote")]
    assert set(odd) == {("refused", "attend")}


#: starts one command that ends, and one that holds the interpreter, in which no thread could run
STARTER = """
import subprocess, sys, time
def start(*words):
    return subprocess.Popen([sys.executable, *words], stdin=subprocess.PIPE, start_new_session=True)
print(start("-m", "privgate.serve", "demo", "--help").wait(), flush=True)
holds = 'import re; re.match("(a+)+$", 40 * "a" + "b")'
own = "import runpy, privgate.serve as c; runpy.run_module = lambda *a, **k: exec(%r); c.run_as_child()" % holds
print(start("-c", own).pid, flush=True)
time.sleep(600)
"""


@pytest.mark.server
def test_a_check_ends_with_the_process_that_started_it():
    """Kill -9 of the starter closes the pipe; the child and its own children are gone a moment later."""
    starter, lines = subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True), []
    while not (lines and lines[-1].strip().isdigit() and int(lines[-1]) > 1):
        lines.append(starter.stdout.readline())
        assert lines[-1], "the starter ended"
    assert "0\n" in lines  # the command line ran through
    child = int(lines[-1])
    time.sleep(2)  # until it has begun
    assert not gone(child)
    starter.kill()
    starter.wait()
    until(lambda: gone(child))
