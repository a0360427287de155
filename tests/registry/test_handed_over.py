"""The deciding job over a folder that whoever ran the audit made: one sentence, and nothing of the signer's told."""

import json
import os
import shutil
from pathlib import Path

import pytest

from privgate import github
from privgate.__main__ import run
from privgate.guard import verification
from privgate.guard.signing import sign

SECRET = "what-the-signer-alone-may-read"


@pytest.fixture
def folder(checked, tmp_path):
    """The audit's report, as it is downloaded, beside files of a pull request's checkout."""
    place = tmp_path / "checkout"
    place.mkdir()
    shutil.move(checked[1], place / "privgate-report")
    (place / "secret").write_text(SECRET)
    (place / "privgate.yaml").write_text("accept-unboxed: true\nregistry-id: theirs\n")
    os.chdir(place)
    return place / "privgate-report"


@pytest.fixture
def decide(folder, approved, signer, capsys):
    """Run the decision's steps as the workflow does: (exit code, outputs, summary, what was printed)."""

    def step(**inputs):
        told = {
            "MODEL": "models:/credit/1",
            "POLICY": "dtp-1",
            "REGISTRY_ID": "r",
            "TARGET": "credit@production",
            "REPORT_DIR": "privgate-report",
            "TRACKING_URI": approved[0],
            "ISOLATION": "none",
            **inputs,
        }
        files = {name: folder.parent / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for file in files.values():
            file.write_text("")
        environ = {f"PRIVGATE_INPUT_{k}": v for k, v in told.items()} | {k: str(v) for k, v in files.items()}
        (folder.parent / "key.pem").write_bytes(signer.private_bytes)
        (folder.parent / "key.pem").chmod(0o600)
        code = github.perform(
            "sign", environ, execute=lambda words: run([*words, "--key", str(folder.parent / "key.pem"), "--no-attach"])
        )
        found = capsys.readouterr()
        outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
        return code, outputs, files["GITHUB_STEP_SUMMARY"].read_text(), found.out + found.err

    return step


def refused(told, *, code=4):
    """Whether the step ended by one sentence, told nothing of the signer's, and signed nothing."""
    ended, outputs, summary, printed = told
    assert (ended, outputs["verdict"], outputs["attestation"]) == (code, "error", "")
    assert printed.count("error: ") == 1, printed
    assert "Traceback" not in printed
    assert SECRET not in printed + summary
    assert "no verdict" in summary
    return printed


def change(folder, edit):
    document = json.loads((folder / "report.json").read_text())
    edit(document)
    (folder / "report.json").write_text(json.dumps(document))


def instead(name, make):
    def put(folder):
        (folder / name).unlink(missing_ok=True)
        make(folder / name)

    return put


def both(document, **values):
    for subject in (document["subject"], document["evidence"]["subject"]):
        subject.update(values)


ARTIFACTS = {
    "a link": instead("report.json", lambda p: p.symlink_to("../secret")),
    "a pipe": instead("report.json", os.mkfifo),
    "a folder": instead("report.json", Path.mkdir),
    "a long file": instead("report.json", lambda p: (p.touch(), os.truncate(p, 64 << 20))),
    "lists in lists": instead("report.json", lambda p: p.write_text("[" * 100_000)),
    "a key twice": instead("report.json", lambda p: p.write_text('{"schema": 1, "schema": 2}')),
    "another version": lambda f: change(f, lambda d: both(d, version="2")),
    "another policy": lambda f: change(f, lambda d: d["policy"].update(digest="sha256:" + "0" * 64)),
    "evidence of text": lambda f: change(f, lambda d: d.update(evidence="approved")),
}


@pytest.mark.parametrize("what", ARTIFACTS)
def test_what_is_no_report_of_this_model_is_one_sentence(folder, decide, what):
    ARTIFACTS[what](folder)
    refused(decide())


def test_nothing_beside_the_report_is_read_shown_or_written_through(folder, decide):
    victim = folder.parent / "secret"
    for name in ("evidence.dsse.json", "verdict.dsse.json", "summary.md"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(victim)
    (folder / "junit.xml").unlink(missing_ok=True)
    (folder / "junit.xml").symlink_to(folder.parent / "not-there-before")
    code, outputs, summary, printed = decide()
    assert (code, outputs["verdict"]) == (0, "warned")
    assert SECRET not in summary + printed
    assert summary.startswith("## privgate: warned, signed\n")
    assert victim.read_text() == SECRET
    assert not (folder.parent / "not-there-before").exists()
    assert not (folder / "verdict.dsse.json").is_symlink()


def test_the_page_of_the_decision_is_not_the_audits(folder, decide):
    (folder / "summary.md").write_text("# Approved\n\nby theorem, for everybody\n")
    _, _, summary, _ = decide()
    assert "theorem" not in summary


@pytest.mark.parametrize("name", ["MODEL", "TARGET", "TRACKING_URI"])
def test_no_input_of_the_workflow_is_an_option(decide, name):
    for value in ("--checked-elsewhere", "-h", "a\n::set-output name=verdict::passed", "a\x1b[2J"):
        code, outputs, _, printed = decide(**{name: value})
        assert (code, outputs) == (2, {"verdict": "error", "exit-code": "2"})
        assert not [line for line in printed.splitlines() if line.startswith("::set")]


# what ran without a box


def test_an_approval_without_a_box_is_not_signed_unless_the_operator_says_so(folder, decide):
    """The fixture's check ran without one; ``accept-unboxed`` in a working folder is nobody's word."""
    assert json.loads((folder / "report.json").read_text())["evidence"]["run"]["isolation"] == "none"
    assert "training not in a sandbox" in (folder / "report.html").read_text()
    assert "without a box" in refused(decide(ISOLATION="bubblewrap"))
    assert "without a box" in refused(decide(ISOLATION=""))
    assert decide(ISOLATION="none")[0] == 0


@pytest.mark.parametrize("said", ["", "none bubblewrap", "bubblewrapped 9", "Bubblewrap 1"])
def test_only_a_box_is_one(folder, decide, said):
    change(folder, lambda d: d["evidence"]["run"].update(isolation=said))
    assert "without a box" in refused(decide(ISOLATION="bubblewrap"))


def test_the_host_of_the_check_is_believed_about_its_box(checked, signer, decide, folder):
    """Nothing shows it: so the audit demands the box before any code of the author's runs."""
    change(folder, lambda d: d["evidence"]["run"].update(isolation="bubblewrap 0.8.0"))
    assert decide(ISOLATION="bubblewrap")[0] == 0
    made = sign(folder, signer, policy=checked[0], registry="r")
    assert verification.is_sandboxed(made.claims.isolation)
