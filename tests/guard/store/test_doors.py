"""The commands of trust from outside: what they print, and how they exit."""

import json
import stat

import pytest

from privgate.__main__ import run
from privgate.errors import PrivgateError
from privgate.guard import keys as truststore
from privgate.guard.config import Guard


@pytest.fixture
def store(tmp_path):
    return tmp_path / "trust.json"


def keys(*arguments):
    return run(["guard", "keys", *map(str, arguments)])


def test_a_new_key_is_private_and_trusted_and_never_overwrites(tmp_path, store, capsys):
    private = tmp_path / "key.pem"
    assert keys(private, "--trust", store, "--days", 30, "--model", "credit*") == 0
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    (key,) = truststore.TrustStore.load(store).keys
    assert (key.roles, key.scope, key.models) == (("evidence", "verdict"), ("credit*",), ())
    assert truststore.signer_from(key_file=private).public_key.keyid == key.key_id
    assert private.read_text() not in capsys.readouterr().out

    before = private.read_bytes()
    assert keys(private, "--trust", store) == 2
    assert private.read_bytes() == before
    assert len(truststore.TrustStore.load(store).keys) == 1


def test_a_key_is_revoked_and_listed_so(tmp_path, store, capsys):
    for name in ("old.pem", "new.pem"):
        keys(tmp_path / name, "--trust", store)
    first, _ = truststore.TrustStore.load(store).keys
    assert run(["guard", "revoke", first.key_id[:10], "--trust", str(store)]) == 0
    capsys.readouterr()
    assert keys("--trust", store) == 0
    shown = capsys.readouterr().out
    assert "counts" in shown
    assert "was revoked on" in shown


def test_an_unknown_key_or_a_broken_store_exits_with_4(tmp_path, store):
    keys(tmp_path / "key.pem", "--trust", store)
    assert run(["guard", "revoke", "ffffffffff", "--trust", str(store)]) == 4
    assert run(["guard", "revoke", "3", "--trust", str(store)]) == 2  # it could be a version's number
    store.write_text(json.dumps({"schema": "privgate/trust/v1"}))
    assert keys("--trust", store) == 4


def test_commands_that_cannot_be_used_exit_with_2(tmp_path, site):
    assert run(["guard", "sign", "--policy", "dtp-1"]) == 2
    assert run(["guard", "sign", str(tmp_path), "--policy", "dtp-1"]) == 2
    assert run(["guard", "sign", str(tmp_path), "--policy", "dtp-1", "--registry-id", "r"]) == 2  # no key
    assert run(["verify", "models:/m/1"]) == 2
    broken = tmp_path / "guard.yaml"
    broken.write_text(site.config.read_text() + "surprise: 1\n")
    assert run(["guard", "doctor", "--config", str(broken)]) == 2
    assert run(["verify", "models:/m/1", "--config", str(tmp_path / "absent.yaml")]) == 2


@pytest.mark.server
def test_verify_and_doctor_exit_with_0_or_4(registry, site, name, capsys):
    version = registry.log(name)
    where = ["--config", str(site.config), "--tracking-uri", registry.address]
    assert run(["verify", f"models:/{name}/{version}", *where]) == 4
    assert "there is no statement" in capsys.readouterr().err
    registry.release(name, version)
    assert run(["verify", f"models:/{name}/{version}", "--target", "production", *where]) == 0
    assert "verified: " in capsys.readouterr().out
    assert run(["guard", "doctor", "--config", str(site.config), "--tracking-uri", "http://127.0.0.1:9"]) == 4


@pytest.mark.parametrize(
    "change",
    [
        ("registry: test-registry", "registry: ''"),
        ('aliases: [production]\n  stages: [Production]\n  models: ["prod.*"]', "aliases: []"),
        ("policy: dtp-1", "policy: dtp-1, policy: dtp-1"),
        ("trust: trust.json", "trust: absent.json"),
        ("guard/v2", "guard/v1"),
    ],
)
def test_a_guard_that_would_guard_nothing_or_means_something_else_is_refused(site, tmp_path, change):
    path = tmp_path / "guard.yaml"
    (tmp_path / "trust.json").write_text((site.folder / "trust.json").read_text())
    path.write_text(site.config.read_text())
    assert Guard.load(path).aliases == {"production"}
    path.write_text(site.config.read_text().replace(*change))
    with pytest.raises(PrivgateError):
        Guard.load(path)
