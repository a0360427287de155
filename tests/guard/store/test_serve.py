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
from privgate.errors import RegistryError
from privgate.policy import Policy
from privgate.serve import PROBLEM_TAG, TAG, Loop, Server
from tests.guard.store.served_process import SECRET, serving, until


@pytest.fixture
def registry(quiet, free_port):
    """A guarded registry without anything else: a reconciler attends to everything that asks."""
    quiet.free_port = free_port
    return quiet


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
    """Work about a registry that holds one request; a command ends with a code."""

    def __init__(self, folder, monkeypatch, text="dtp-1,production", *, sign=True, code=0):
        words, client = "sign {uri} {nonce}" if sign else None, SimpleNamespace(tracking_uri="sqlite:////registry.db")
        known = {"dtp-1": "dtp-1", "own": "/etc/own.yaml"}
        super().__init__(client, folder / "guard.yaml", known, folder, ["--jobs=1"], words)
        self.tags, self.ran, self.text = {TAG: text}, [], text
        self.guard = Mock()
        self.guard.terms.return_value.policy_digest = Policy.load("dtp-1").digest
        client.delete_model_version_tag = lambda name, version, key: self.tags.pop(key)
        client.set_model_version_tag = lambda name, version, key, value: self.tags.update({key: value})
        client.get_model_version = lambda name, version: SimpleNamespace(tags=self.tags)
        monkeypatch.setattr(serve.Guard, "load", lambda _: self.guard)

        def child(words, log, seconds):
            self.ran.append(words)
            return code, "error: as it says"

        monkeypatch.setattr(serve, "run_command", child)

    def _list_requests(self):
        return {("credit", "2"): self.tags[TAG]} if TAG in self.tags else {}

    def ask(self):
        self.answer(self.guard, "credit", "2", self.text)


RUN = serve.run_command
WAITS = "approved, but not signed; sign it and ask again"


@pytest.mark.parametrize(
    ("text", "code", "ran", "problem"),
    [
        ("dtp-1,production", 0, "promote", ""),
        (" dtp-1 , production ", 1, "promote", ""),
        ("dtp-1,production;17", 5, "promote", ""),
        ("dtp-1;host-1;1800000060.000;1799999000", 0, "check", ""),  # as version 0.1 wrote it
        ("dtp-1,production", 6, "promote", WAITS),
        (",production", 0, "promote", ""),  # the guard's own policy
        ("", 0, "check", ""),
        ("dtp-1", 1, "check", ""),
        ("/etc/own.yaml", None, "", "this server checks by dtp-1, own"),
        ("dtp-1,production", 4, "promote", "ended with 4: error: as it says"),  # a signer that refuses or is down
        ("dtp-1,production", 3, "promote", "ended with 3"),
        ("dtp-1,production", 130, "promote", "ended with 130"),
    ],
)
def test_a_request_is_answered_by_one_command_or_tried_again(tmp_path, monkeypatch, text, code, ran, problem):
    own = Known(tmp_path, monkeypatch, text, sign=code != 6, code=code)
    due = own.look()
    assert [words[0] for words in own.ran] == ([ran] if ran else [])
    assert problem in own.tags.get(PROBLEM_TAG, "")
    again = code not in {0, 1, 5, 6}
    assert (own.tags.get(TAG) == text) == (0 < due < 60) == again
    for words in own.ran:
        assert ("--forward-only" in words) == ("--to=production" in words) == (ran == "promote")
        assert ("--sign-command=sign {uri} {nonce}" in words) == (ran == "promote" and code != 6)
    own.look()
    assert len(own.ran) == bool(ran)  # what failed waits


def test_who_asks_again_meanwhile_is_answered_by_another_command(tmp_path, monkeypatch):
    own = Known(tmp_path, monkeypatch)
    own.text = "dtp-1"
    own.ask()
    assert own.tags[TAG] == "dtp-1,production"


def test_a_target_that_another_policy_releases_is_refused_before_anything_runs(tmp_path, monkeypatch):
    own = Known(tmp_path, monkeypatch)
    own.guard.demands.side_effect = RegistryError("by another policy")
    with pytest.raises(RegistryError, match="by another policy"):
        own.ask()
    assert own.ran == []


def test_a_command_past_its_clock_is_ended_and_not_approved(tmp_path, monkeypatch):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nsleep 600 & echo $! > $0.pid\nwait\n")
    program.chmod(0o700)
    own, began = Known(tmp_path, monkeypatch), time.monotonic()
    own.seconds = 1.0
    monkeypatch.setattr(serve.sys, "executable", str(program))
    monkeypatch.setattr(serve, "run_command", RUN)
    with pytest.raises(RegistryError, match=r"more than 1 s \(--check-seconds\) and was ended"):
        own.ask()
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
    options = ("--every", "600", "--", "--jobs", "1")
    with serving(registry, tmp_path / "s", *options) as served:
        until(lambda: TAG not in tags(registry, approved), served, seconds=600)
        assert alias(registry, approved) == "1"
        problem = "this server checks by dtp-1"
        until(lambda: problem in tags(registry, unknown, strange).get("privgate.problem", ""), served)
        until(lambda: served.get("/health") == (200, "ok\n"), served)

        # a webhook wakes it, long before its time; a forged one does not
        ask(approved, "1", TAG, "dtp-1,production")  # has a statement: no second check
        body = b"{}"
        assert served.get("/webhook", body, headers("f", int(time.time()), body, b"forged"))[0] == 403
        assert TAG in tags(registry, approved)
        assert served.get("/webhook", body, headers("d", int(time.time()), body))[0] == 202
        until(lambda: TAG not in tags(registry, approved), served)

        # and so does MLflow itself: it sends and signs this one
        event = WebhookEvent(WebhookEntity.MODEL_VERSION_TAG, WebhookAction.SET)
        hook = registry.client.create_webhook("wake", served.address + "/webhook", [event], secret=SECRET.decode())
        ask(approved, "1", TAG, "dtp-1,production")
        until(lambda: TAG not in tags(registry, approved), served)
        registry.client.delete_webhook(hook.webhook_id)


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
