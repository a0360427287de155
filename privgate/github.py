"""``python -m privgate.github check|sign``: one step of a GitHub workflow around the command of the same name.

Inputs arrive as environment variables only, so that no value is ever part of a script. Written are the step's outputs
(verdict, exit-code, report-dir, attestation), its summary (under 200 KiB), one annotation, and JUnit XML in any case.
"""

import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from privgate.documents import LARGE, strict_json
from privgate.errors import ExitCode, UsageError
from privgate.training.isolation import missing

#: bytes of one step's summary; GitHub drops a summary above 1 MiB without failing the step
LARGEST_SUMMARY = 200 * 1024
KEY_VARIABLE = "PRIVGATE_SIGNING_KEY"

_CODES = {"passed": ExitCode.PASSED, "warned": ExitCode.PASSED, "failed": ExitCode.FAILED}
_WORDS: Mapping[int, str] = {
    ExitCode.USAGE: "the command line or the policy cannot be used; nothing was trained",
    ExitCode.INTERNAL: "a bug in privgate",
    ExitCode.SUBJECT: "model, data, registry or statement could not be read or does not match",
    ExitCode.UNSIGNED: "approved; the registry is guarded and waits for a signature, so nothing was promoted",
    ExitCode.INTERRUPTED: "interrupted; a rerun resumes",
}
#: inputs that ``privgate check`` takes as options of the same name
_VALUES = ("tracking-uri", "budget", "jobs", "ledger", "hash-key-file", "isolation")
#: files of a report that this step reads, or that a later one signs
_WRITTEN = ("report.json", "summary.md", "junit.xml", "evidence.dsse.json", "verdict.dsse.json")
_COMMAND_FILES = frozenset({"GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STATE", "GITHUB_STEP_SUMMARY"})

Run = Callable[[list[str]], int]


@dataclass(frozen=True)
class WorkflowStep:
    """What a step was given."""

    #: for ``privgate``
    arguments: tuple[str, ...]
    #: folder of the report
    report_dir: Path
    #: the step succeeds whatever happened; a warning says so
    allow_failure: bool


def check_step(environ: Mapping[str, str]) -> WorkflowStep:
    """Return what ``privgate check`` (or ``promote``) is to be called with; no signing key may be present."""
    if environ.get(KEY_VARIABLE):
        raise UsageError(f"{KEY_VARIABLE} is set where training code runs; sign in another job")
    model, policy = _input(environ, "model", required=True), _input(environ, "policy", required=True)
    report, alias = _input(environ, "report-dir") or "privgate-report", _input(environ, "promote-to")
    arguments = ["promote", model, "--to", alias] if alias else ["check", model]
    arguments += ["--policy", policy, "--report-dir", str(Path(report)), "--quiet"]
    values = {name: _input(environ, name) for name in (*_VALUES, *(("sign-command",) if alias else ()))}
    arguments += [word for name, value in values.items() if value for word in (f"--{name}", value)]
    arguments += ["--observe"] if _flag(environ, "observe") else []
    if not _flag(environ, "attach", default=True):
        if alias:
            raise UsageError("input attach is false: a version that is promoted carries its report")
        arguments.append("--no-attach")
    return WorkflowStep(tuple(arguments), Path(report), _flag(environ, "allow-failure"))


def sign_step(environ: Mapping[str, str]) -> WorkflowStep:
    """Return what ``privgate guard sign`` is to be called with; it runs on a host that ran no training code."""
    # what the workflow was called with, not what the report says of itself
    names = ("report-dir", "policy", "registry-id", "model", "target")
    report, policy, registry, model, target = (_input(environ, name, required=True) for name in names)
    arguments = ["guard", "sign", report, "--policy", policy, "--registry-id", registry]
    arguments += ["--model", model, "--target", target, "--checked-elsewhere"]
    arguments += ["--tracking-uri", uri] if (uri := _input(environ, "tracking-uri")) else []
    if _input(environ, "isolation") in {"auto", "none"}:  # the caller's word, not the report's
        arguments.append("--accept-unboxed")
    return WorkflowStep(tuple(arguments), Path(report), allow_failure=False)


def _input(environ: Mapping[str, str], name: str, *, required: bool = False) -> str:
    value = environ.get(f"PRIVGATE_INPUT_{name.upper().replace('-', '_')}", "").strip()
    if required and not value:
        raise UsageError(f"input {name} is missing")
    if value.startswith("-"):
        raise UsageError(f"input {name} begins with '-' and would be read as an option")
    if not value.isprintable():
        raise UsageError(f"input {name} holds a line break or a control character")
    return value


def _flag(environ: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    value = _input(environ, name).lower()
    if value not in {"", "true", "false"}:
        raise UsageError(f"input {name} is {value!r}, not true or false")
    return value == "true" if value else default


def run(arguments: list[str]) -> int:
    """Run privgate in this Python and return its exit code; its text cannot command the runner."""
    token = secrets.token_hex(16)
    command = [sys.executable, "-P", "-m", "privgate", *arguments]
    # what runs training code can neither write this job's outputs and variables nor ask for its tokens
    environ = {k: v for k, v in os.environ.items() if k not in _COMMAND_FILES and not k.startswith("ACTIONS_")}
    _say(f"::stop-commands::{token}")
    try:
        return subprocess.run(command, env=environ, check=False).returncode  # noqa: S603  a list, never a shell
    finally:
        _say(f"::{token}::")


def perform(mode: str, environ: Mapping[str, str], *, execute: Run = run) -> int:
    """Perform one step and return its exit code."""
    try:
        step = check_step(environ) if mode == "check" else sign_step(environ)
    except UsageError as exc:
        _command("error", str(exc))
        with contextlib.suppress(OSError):  # the runner's own file: the exit code says it too
            _outputs(environ, {"verdict": "error", "exit-code": str(int(ExitCode.USAGE))})
        return int(ExitCode.USAGE)
    try:
        # every file that the step will write is tried before anything is trained
        for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
            _append(environ.get(name), "")
        if mode == "check":
            step.report_dir.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=step.report_dir):
                pass
    except OSError as exc:
        _command("error", f"{exc.filename} cannot be written: {exc.strerror}; nothing was trained")
        return int(ExitCode.USAGE)
    for name in _WRITTEN if mode == "check" else ():  # nothing stale is told or signed
        (step.report_dir / name).unlink(missing_ok=True)
    code = execute(list(step.arguments))
    report = _report(step.report_dir)
    verdict, code = _agreed(mode, code, report)
    _tell(environ, step, None if verdict == "error" else report, verdict, code)
    if code and step.allow_failure:
        _command("warning", f"exit code {code} is ignored: internal-be-careful-allow-failure is set")
        return 0
    return code


def _report(folder: Path) -> dict[str, Any] | None:
    try:
        document = strict_json.read(folder / "report.json", LARGE)
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def _agreed(mode: str, code: int, report: dict[str, Any] | None) -> tuple[str, int]:
    """Return verdict and exit code; where the two contradict one another, nothing is approved."""
    if code < 0:  # killed by a signal
        return "error", int(ExitCode.INTERNAL)
    outcome = "" if report is None else str(report.get("outcome"))
    expected = _CODES.get(outcome, ExitCode.INCONCLUSIVE)
    if code == ExitCode.UNSIGNED and mode == "check" and expected is ExitCode.PASSED:
        return outcome, code  # the verdict stands; what is missing is a signature
    if code not in (ExitCode.PASSED, ExitCode.FAILED, ExitCode.INCONCLUSIVE):
        return "error", code
    if report is None:
        return "error", int(ExitCode.INTERNAL)
    if mode == "check" and report.get("observed") is True:
        expected = ExitCode.PASSED
    return (outcome, code) if code == expected else ("error", int(code or ExitCode.INTERNAL))


def _tell(
    environ: Mapping[str, str], step: WorkflowStep, report: dict[str, Any] | None, verdict: str, code: int
) -> None:
    """Write outputs, annotations, JUnit and summary; without a report that counts, how privgate ended."""
    envelope, junit = step.report_dir / "verdict.dsse.json", step.report_dir / "junit.xml"
    values = {"verdict": verdict, "exit-code": str(code), "report-dir": str(step.report_dir)}
    _outputs(environ, {**values, "attestation": str(envelope) if envelope.is_file() else ""})
    ended = f"exit code {code}: {_WORDS.get(code, 'no verdict')}"
    if code == ExitCode.USAGE and _input(environ, "isolation") == "bubblewrap" and (why := missing()):
        ended += f"; training code has no box here: {why}"
    if step.arguments[0] != "guard" and not junit.is_file():
        junit.parent.mkdir(parents=True, exist_ok=True)
        junit.write_text(_junit(f"privgate ended with {ended}"), encoding="utf-8")
    if report is None:
        _command("error", f"privgate ended with {ended}")
    elif code or verdict == "warned":
        _command("error" if code else "warning", f"the verdict is {verdict}; the summary of this run says why")
    _append(environ.get("GITHUB_STEP_SUMMARY"), _summary(step, report, verdict, ended))


def _command(kind: str, message: str) -> None:
    """Print a workflow command; percent signs and line ends are escaped."""
    _say(f"::{kind} title=privgate::{_escape(message)}")


def _say(line: str) -> None:
    """Print a line for the runner, before anything that a child prints."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _summary(step: WorkflowStep, report: dict[str, Any] | None, verdict: str, ended: str) -> str:
    """Return the page of the run, cut at a line if it is too long."""
    page = step.report_dir / "summary.md"
    if step.arguments[0] == "guard" and report is not None:
        # the page beside the report is under no signature, and may be a link to what the signer alone may read
        return f"## privgate: {verdict}, signed\n\nWhy stands on the page of the audit, which is not signed.\n"
    if report is None or not page.is_file():
        return f"## privgate: no verdict\n\n{ended[:1].upper()}{ended[1:]}. The log of this step says more.\n"
    text = page.read_text(encoding="utf-8")
    if len(text.encode()) <= LARGEST_SUMMARY:
        return text
    note = "\n\n*Cut here; the whole page is in the report.*\n"
    kept = text.encode()[: LARGEST_SUMMARY - len(note.encode())].decode(errors="ignore")
    return kept.rpartition("\n")[0] + note


def _junit(message: str) -> str:
    """Return JUnit XML for a run that ended without a report: one case, in error."""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<testsuite name="privgate" tests="1" failures="0" errors="1" skipped="0">\n'
        f'  <testcase classname="privgate" name="check" time="0"><error message={quoteattr(message)}>'
        f"{escape(message)}</error></testcase>\n</testsuite>\n"
    )


def _outputs(environ: Mapping[str, str], values: Mapping[str, str]) -> None:
    """Write outputs, each on one line."""
    _append(environ.get("GITHUB_OUTPUT"), "".join(f"{k}={v if v.isprintable() else ''}\n" for k, v in values.items()))


def _append(file: str | None, text: str) -> None:
    if file:
        with Path(file).open("a", encoding="utf-8") as f:
            f.write(text)


def take_credentials() -> None:
    """Put the lines NAME=VALUE of ``PRIVGATE_CREDENTIALS`` into the environment; the runner's log hides the values."""
    for line in filter(str.strip, os.environ.pop("PRIVGATE_CREDENTIALS", "").splitlines()):
        name, equals, value = line.strip().partition("=")
        _say(f"::add-mask::{_escape(value or name)}")
        os.environ.update({name: value} if name and equals else {})


def main() -> None:
    """Run the step that the first argument names."""
    take_credentials()
    if sys.argv[1:] not in (["check"], ["sign"]):
        _command("error", "call python -m privgate.github check, or sign")
        sys.exit(int(ExitCode.USAGE))
    sys.exit(perform(sys.argv[1], os.environ))


if __name__ == "__main__":
    main()
