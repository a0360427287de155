"""``privgate check`` and ``privgate promote``."""

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import shlex
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from privgate.cli import console, options, shared
from privgate.documents import LARGE, DocumentError, strict_json
from privgate.errors import ExitCode, PrivgateError, RegistryError, StatementError, SubjectError, UsageError
from privgate.evidence.verdict import Verdict
from privgate.policy import Policy
from privgate.subject.subject import Subject

#: beside an approved report that was not signed yet
WAITING = "waiting-for-signature"
#: model and alias that no shell reads as anything else, and how a shell or ssh says that it ran nothing
_PLAIN, _NOT_RUN = re.compile(r"[\w.@+-]+"), {126, 127, 255}
#: how a guarded store's refusals begin
GUARDED = "privgate:"


@click.command(cls=options.Grouped)
@options.subject
@options.policy
@options.run
@click.option("--no-attach", is_flag=True, help="Write the report to --report-dir only, nothing to the registry.")
@click.option("--plan", is_flag=True, help="Print what the check would cost and what it can conclude, then stop.")
@click.option("--advise", "advises", is_flag=True, help="Where it blocks, search for a change that is approved.")
@click.option(
    "--recompute",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Train nothing: make the certificates of the check whose report is in FOLDER again from the data.",
)
def check(*, uri: str, no_attach: bool, plan: bool, advises: bool, recompute: Path | None, **settings: Any) -> int:
    """Judge the model version URI by a policy.

    URI is models:/name/version, models:/name@alias, models:/<model_id>, runs:/<run_id>/<name> or a run id.
    """
    if plan:
        return options.print_plan(options.build(uri, settings, writes=False))
    if recompute is not None:
        return _recomputed(options.build(uri, settings, writes=False), recompute)
    verdict, _ = _checked(uri, attach=not no_attach, settings=settings | {"advises": advises})
    return int(verdict.exit_code)


def _recomputed(given: options.CheckInputs, folder: Path) -> int:
    """Print what comes out again of a report's yes by theorem, of the data and without a training."""
    from privgate.check import gate

    place = folder / "report.json"
    try:
        document = strict_json.read(place, LARGE)
    except OSError as exc:
        raise SubjectError(f"{place} cannot be read: {exc.strerror}") from exc
    except DocumentError as exc:
        raise SubjectError(f"{place} cannot be read: it {exc}") from exc
    for sentence in gate.again(given.subject, document, folder, given.policy):
        click.echo(console.plain(f"recomputed: {sentence}"))
    return 0


@click.command(cls=options.Grouped)
@options.subject
@click.option("--to", "alias", required=True, metavar="ALIAS", help="Alias to set if the model is approved.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="The guard's configuration. Nothing is promoted without a statement that counts; what has one is not "
    "checked again.",
)
@click.option("--forward-only", is_flag=True, help="Leave the alias where a later version has it.")
@shared.sign_command
@click.option("--sign-timeout", type=float, default=3600.0, show_default=True, help="Seconds to wait for the signer.")
@options.policy
@options.run
def promote(*, uri: str, alias: str, sign_command: str | None, sign_timeout: float, **settings: Any) -> int:
    """Check the model version URI, attach the report, have it signed, and set the alias only if it is approved.

    Without a guarded registry store this is advisory: somebody else can still set the alias by hand. A guarded one asks
    for a signed statement. This process never holds the key: --sign-command names who does, or the command ends with
    6, approved and unsigned. With --sign-command a rerun within a day goes on from the approved report, once.
    """
    if settings["config"] is not None:
        _guard(uri, alias, settings)  # an unusable one, or another policy, is said now and not after a training
    if settings["config"] is not None and not settings["observe"]:
        with contextlib.suppress(StatementError):  # then a check is due
            return _released(uri, alias, settings)
    if sign_command is not None:
        if subject_waiting := _waiting(uri, alias, settings):
            _signed(sign_command, sign_timeout, subject_waiting, alias, settings)
            return _moved(subject_waiting, alias, settings)
        settings["nonce"] = settings["nonce"] or secrets.token_hex(16)
    verdict, subject = _checked(uri, attach=True, settings=settings, alias=alias)
    if not verdict.approved:
        why = "the run only observes" if verdict.observed else f"the verdict is {verdict.decision.text}"
        click.echo(f"not promoted: {why}; @{alias} is unchanged", err=True)
        return int(verdict.exit_code)
    try:
        return _moved(subject, alias, settings)
    except (RegistryError, StatementError) as exc:
        if isinstance(exc, RegistryError) and GUARDED not in str(exc):
            raise
        if sign_command is None:
            folder, policy = shlex.quote(settings["report_dir"]), shlex.quote(settings["policy_name"])
            config = shlex.quote(str(settings["config"] or "guard.yaml"))
            how = f"privgate guard sign {folder} --policy {policy} --config {config} --model {subject.uri}"
            click.echo(
                console.plain(
                    f"approved, not promoted: {exc}; sign it as another user: {how}; then promote it with --config "
                    f"{config}, which checks nothing again"
                ),
                err=True,
            )
            return int(ExitCode.UNSIGNED)
    _waits(subject, alias, settings)
    _signed(sign_command, sign_timeout, subject, alias, settings)
    return _moved(subject, alias, settings)


def _moved(subject: Subject, alias: str, settings: dict[str, Any]) -> int:
    from privgate import registry

    if settings["config"] is not None:
        return _released(_exact(subject), alias, settings)
    where, forward = settings["tracking_uri"], settings["forward_only"]
    has = registry.promote(subject, alias, tracking_uri=where, forward_only=forward)
    return _print_promotion(_exact(subject), has, alias, settings)


def _guard(uri: str, alias: str, settings: dict[str, Any]) -> tuple[Any, Any, str]:
    from privgate.guard.config import Guard
    from privgate.registry.client import connect
    from privgate.registry.named import named

    guard, client = Guard.load(settings["config"]), connect(settings["tracking_uri"])
    name = named(client, uri).name
    guard.demands(alias, name, Policy.load(settings["policy_name"]).digest)
    return guard, client, name


def _released(uri: str, alias: str, settings: dict[str, Any]) -> int:
    from privgate.guard.verification import verify
    from privgate.registry.attachments import move

    guard, client, name = _guard(uri, alias, settings)
    exact = verify(uri, guard, target=alias, tracking_uri=settings["tracking_uri"]).uri
    has = move(client, name, exact.rpartition("/")[2], alias, forward_only=settings["forward_only"])
    return _print_promotion(exact, has, alias, settings)


def _print_promotion(uri: str, has: str, alias: str, settings: dict[str, Any]) -> int:
    with contextlib.suppress(OSError):
        (Path(settings["report_dir"]).expanduser() / WAITING).unlink()
    said = f"promoted: {uri} is now @{alias}"
    if uri.rpartition("/")[2] != has:
        said = f"approved, not promoted: @{alias} stays with the later version {has}"
    # what a program reads on stdout stays one document
    click.echo(console.plain(said), err=settings["form"] != "text")
    return int(ExitCode.PASSED)


def _mac(uri: str, alias: str, settings: dict[str, Any], folder: Path) -> str:
    from privgate.training import ledger

    key = ledger.given_key(None) or ledger.own_key()
    options_given = {
        k: str(v) for k, v in settings.items() if k not in {"nonce", "tracking_uri", "form", "quiet", "jobs"}
    }
    content = (folder / "report.json").read_bytes()
    content_signed = json.dumps([uri, alias, options_given, hashlib.sha256(content).hexdigest()], sort_keys=True)
    return hmac.digest(key, content_signed.encode(), "sha256").hex()


def _waits(subject: Subject, alias: str, settings: dict[str, Any]) -> None:
    folder = Path(settings["report_dir"]).expanduser()
    with contextlib.suppress(OSError):  # without the note a rerun checks again
        (folder / WAITING).write_text(_mac(_exact(subject), alias, settings, folder), encoding="utf-8")


def _exact(subject: Subject) -> str:
    return f"models:/{subject.name}/{subject.version}"


def _waiting(uri: str, alias: str, settings: dict[str, Any]) -> Subject | None:
    """Return the version whose approved report waits in the report's folder for its signature; its nonce is asked.

    A note is good for one more try: whoever signs may refuse, and then a check is due.
    """
    from privgate import registry
    from privgate.report import schema

    folder = Path(settings["report_dir"]).expanduser()
    try:
        noted = (folder / WAITING).read_text(encoding="utf-8")
        subject = registry.load_subject(uri, tracking_uri=settings["tracking_uri"])
        mine = hmac.compare_digest(noted, _mac(_exact(subject), alias, settings, folder))
        document = schema.read(strict_json.read(folder / "report.json", LARGE))
        fresh = datetime.now(UTC) - datetime.fromisoformat(document.decided_at) < timedelta(days=1)
    except (OSError, PrivgateError, ValueError, TypeError):
        return None
    policy, run = Policy.load(settings["policy_name"]), document.evidence.run
    same = dict(document.subject.digests) == dict(subject.digests) and document.policy.digest == policy.digest
    same_nonce = settings["nonce"] in ("", run.nonce) and bool(run.nonce) and not settings["observe"]
    if not (mine and fresh and same and same_nonce and document.approved and not document.observed):
        return None
    _promotable(policy, subject, alias)
    (folder / WAITING).unlink()
    settings["nonce"] = run.nonce
    console.note(f"going on from the approved report of {document.decided_at} in {folder}; nothing is trained")
    return subject


def _signed(command: str, timeout: float, subject: Subject, alias: str, settings: dict[str, Any]) -> None:
    """Hand an approval to the signer's command, without a shell or secrets; it waits on if the signer did not run."""
    name = str(subject.name)
    named = {"out": settings["report_dir"], "policy": settings["policy_name"], "uri": _exact(subject), "model": name}
    named |= {"nonce": settings["nonce"], "version": subject.version, "target": f"{name}@{alias}"}
    words = shlex.split(command)
    if not _PLAIN.fullmatch(odd := named["target"]):
        raise UsageError(
            f"{odd!r} cannot be handed to --sign-command, behind which a shell may stand: a name may have letters, "
            "digits and . _ + - there; sign it by hand"
        )
    for key, value in named.items():
        # a value holds no braces of names: model names come from the registry
        plain = str(value).replace("{", "").replace("}", "")
        words = [word.replace(f"{{{key}}}", plain) for word in words]
    console.note(f"handing the report to the signer, {timeout:g} s at most")
    try:
        subprocess.run(  # noqa: S603  the operator's own command, without a shell
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=True,
            env=_without_secrets(),
        )
    except subprocess.CalledProcessError as exc:
        if exc.returncode < 0 or exc.returncode in _NOT_RUN:
            _waits(subject, alias, settings)
        said = exc.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        raise StatementError(f"the signer command ended with {exc.returncode}: {said[-1][:300]}") from exc
    except (OSError, subprocess.SubprocessError) as exc:
        _waits(subject, alias, settings)
        raise StatementError(f"the signer command did not run ({type(exc).__name__}); run it by hand") from exc


def _without_secrets() -> dict[str, str]:
    from privgate.registry.files import VARIABLE

    secret = ("PRIVGATE_SIGNING_KEY", "PRIVGATE_WEBHOOK_SECRET", "PRIVGATE_LEDGER_KEY")
    return {VARIABLE: "", **{name: value for name, value in os.environ.items() if name not in secret}}


def _promotable(policy: Policy, subject: Subject, alias: str) -> None:
    if not re.fullmatch(r"[\w-]{1,255}", alias, re.ASCII) or re.fullmatch(r"latest|v\d+", alias, re.IGNORECASE):
        raise UsageError(
            f"--to {alias!r} is no alias: letters, digits, '_' and '-', and neither 'latest' nor a version such as 'v1'"
        )
    if not subject.version:
        raise UsageError(f"{subject.uri or subject.name} is no registered version; only versions have aliases")
    if why := policy.refusal(subject.name, alias):
        raise UsageError(f"{why}; @{alias} is unchanged")


def _checked(uri: str, *, attach: bool, settings: dict[str, Any], alias: str | None = None) -> tuple[Verdict, Subject]:
    """Run the route of one check: evaluate, write, then attach; the report is on disk before anything is attached."""
    from privgate import registry, report
    from privgate.advice.search import advise, evaluate
    from privgate.evaluation.notebook import with_context
    from privgate.guard.verification import approved_report
    from privgate.registry.attachments import refuse_unattachable

    run = options.build(uri, settings)
    if alias is not None:
        _promotable(run.policy, run.subject, alias)
    folder = Path(settings["report_dir"]).expanduser()
    if attach and not run.subject.detail.get("model_id"):
        raise UsageError(f"{uri} has no registry to attach the report to; add --no-attach")
    if attach:
        refuse_unattachable(run.subject, tracking_uri=settings["tracking_uri"])
    verdict = evaluate(
        run.policy,
        run.subject,
        fleet=run.fleet,
        limits=run.limits,
        observe=bool(settings["observe"]),
        nonce=str(settings["nonce"]),
        announce=console.note,
    )
    verdict = with_context(verdict, run.subject, run.fleet, settings)
    held = f"models:/{run.subject.name}@{settings['baseline']}"
    before = approved_report(held, config=settings.get("config"), tracking_uri=settings["tracking_uri"])
    try:
        report.write(verdict, folder, hash_key=options.hash_key(settings["hash_key_file"]), baseline=before)
    except OSError as exc:  # it could be written before: a full disk
        raise UsageError(f"the report cannot be written to {folder}: {exc.strerror}; nothing was attached") from exc
    document = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    if settings["form"] == "text":
        options.print_decision(document, folder / "report.html")
    else:
        click.echo(report.render(document, settings["form"]), nl=False)
    if attach:
        try:
            registry.attach(run.subject, folder, verdict, tracking_uri=settings["tracking_uri"])
        except RegistryError as exc:
            raise RegistryError(f"{exc}; the report is in {os.fspath(folder)}, nothing was promoted") from exc
    if verdict.exit_code is ExitCode.PASSED and verdict.observed:
        click.echo("observed only: nothing is approved by this run", err=True)
    if settings.get("advises") and not verdict.outcome.releases:
        advice = advise(run.policy, run.subject, fleet=run.fleet, limits=run.limits, verdict=verdict, tell=console.note)
        for line in advice.lines:
            click.echo(console.plain(line), err=settings["form"] != "text")
    return verdict, run.subject
