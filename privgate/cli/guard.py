"""``privgate guard``: what runs beside a guarded registry: serving, signing, revoking, keys and the doctor."""

import logging
import os
import re
from pathlib import Path
from typing import Any

import click

from privgate.cli import outputs, shared
from privgate.cli.console import plain
from privgate.errors import ExitCode, RegistryError, StatementError, UsageError

#: options of a check or a promotion that are this server's own to give, or turn a promotion into something else
_OWN = {"--observe", "--nonce", "--to", "--config", "--report-dir", "--policy", "--sign-command"}
_CONFIG = click.option("--config", required=True, type=shared.PATH, help="The guard's configuration.")


@click.command(short_help="Check what asks for it in the registry, have it signed, move the alias.")
@_CONFIG
@click.option(
    "--policy", "policies", multiple=True, required=True, metavar="NAME|FILE", help="Of requests; repeatable."
)
@click.option("--work", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder for reports.")
@shared.sign_command
@click.option("--without-isolation", is_flag=True, help="For debugging: training code reads what you can.")
@click.option("--webhook-secret-file", type=shared.PATH, help="The secret the webhook was made with.")
@shared.shown("--host", default="127.0.0.1")
@shared.shown("--port", default=8765, type=click.IntRange(0, 65535))
@shared.shown("--every", default=30.0, type=click.FloatRange(0.1), help="Seconds between looks.")
@shared.shown("--check-seconds", default=86400.0, type=click.FloatRange(0.1), help="Of one check, which then ends.")
@shared.tracking_uri
@click.argument("options", nargs=-1)
def serve(*, options: tuple[str, ...], **o: Any) -> int:
    """Check versions that ask for it by tag privgate.request=POLICY[,ALIAS].

    With ALIAS it runs privgate promote, else privgate check; OPTIONS after -- go to either, such as --budget 30m.
    Without --sign-command, who signs an approval asks again. All state is in the registry: kill it at any time,
    and start it again. GET /health; POST /webhook, made with the secret, only wakes it.
    """
    import uvicorn

    from privgate.cli.check import check
    from privgate.guard.config import Guard
    from privgate.policy import Policy
    from privgate.registry.client import connect
    from privgate.serve import Loop, Server, make_application

    names = {option.split("=")[0] for option in options}
    if own := sorted(_OWN & names):
        raise UsageError(f"{', '.join(own)} is about one model and one decision, no option of a server")
    options = (*options, f"--isolation={_isolation(names, without_isolation=o['without_isolation'])}")
    check.make_context("check", ["models:/name/1", *options])  # a mistake is said now, not in the log of every check
    Guard.load(o["config"])  # refuse a wrong configuration now, not in a log
    known = {Policy.load(p).name: p for p in o["policies"]}
    secret = None if o["webhook_secret_file"] is None else _read_secret(o["webhook_secret_file"])
    work = outputs.folder(o["work"], "--work").resolve()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    about = o["config"], known, work, options, o["sign_command"], o["check_seconds"]
    server = Server(connect(o["tracking_uri"]), *about)
    loop = Loop(server.look, o["every"])
    loop.start()
    # an open connection must not keep the process from ending
    app = make_application(server, loop, secret)
    uvicorn.run(app, host=o["host"], port=o["port"], log_level="warning", timeout_graceful_shutdown=5)
    return 0


def _isolation(names: set[str], *, without_isolation: bool) -> str:
    """Return the isolation that every check is told; refuses to run training code of others as this user."""
    from privgate.training import isolation

    if without_isolation:
        what = "WARNING: --without-isolation: training code runs as this user and reads what it can read"
        click.echo(f"{what}; such an approval counts only where guard.yaml says accept_unboxed: true", err=True)
        return isolation.NONE
    if names & {"--isolation", "--cluster"}:
        raise UsageError("--isolation and --cluster run checks without a box; say --without-isolation beside them")
    if why := isolation.missing():
        raise UsageError(f"{why}; serve runs training code of others, so mend that, or say --without-isolation")
    return isolation.OFFLINE  # the author of the recipe must not choose


def _read_secret(path: Path) -> bytes:
    from privgate.guard.keys import private_bytes

    secret = private_bytes(path, "webhook secret").strip()
    if len(secret) < 16:
        raise UsageError(f"the webhook secret in {path} is shorter than 16 characters")
    return secret


@click.command(short_help="Sign a report; meant for another user than check.")
@click.argument("out_dir", type=click.Path(file_okay=False, path_type=Path))
@click.option("--policy", "policy_name", required=True, metavar="NAME|FILE", help="The signer's own copy.")
@click.option("--config", type=shared.PATH, help="The guard's configuration; gives registry and trust.")
@click.option("--registry-id", metavar="ID", help="Id of the registry, where no --config gives it.")
@click.option("--target", "targets", multiple=True, metavar="MODEL@ALIAS", help="Allowed release; may be repeated.")
@click.option("--to", "to_dir", type=click.Path(file_okay=False, path_type=Path), help="Folder for the envelopes.")
@click.option("--model", "asked_uri", default="", metavar="URI", help="models:/NAME/VERSION; refuse any other report.")
@click.option("--nonce", default="", help="What the check was started with; refuse the report of any other.")
@click.option("--accept-unboxed", is_flag=True, help="Sign approvals of training code that ran without a box.")
@click.option("--checked-elsewhere", is_flag=True, help="I state that another container or host ran the check.")
@click.option("--no-attach", is_flag=True, help="Write the envelopes only, nothing to the registry.")
@shared.tracking_uri
@click.option("--key-id", metavar="ID", help="Id of the key in a key service, as the trust store lists it.")
@click.option("--key", "key_file", type=shared.PATH, help="Private key, PEM, or a URI of a key service.")
def sign(*, out_dir: Path, **o: Any) -> int:
    """Sign the report in OUT_DIR, after judging its numbers again and looking at the registry's files.

    The key comes from --key or the environment variable PRIVGATE_SIGNING_KEY. Run this as another user than privgate
    check, or on another host: otherwise the statement is marked advisory.
    """
    from privgate.guard import signing
    from privgate.guard.config import Guard
    from privgate.guard.keys import signer_from
    from privgate.guard.signing import SigningRequest
    from privgate.policy import Policy

    guard = Guard.load(o["config"]) if o["config"] is not None else None
    registry = o["registry_id"] or (guard.registry if guard is not None else None)
    if registry is None:
        raise UsageError("say which registry this is: --config FILE or --registry-id ID")
    if o["to_dir"] is not None:
        outputs.folder(o["to_dir"], "--to")
    unboxed = o["accept_unboxed"] or (guard is not None and guard.accept_unboxed)
    signed = signing.sign(
        out_dir,
        signer_from(key_file=o["key_file"], key_id=o["key_id"], trust=None if guard is None else guard.trust),
        policy=Policy.load(o["policy_name"]),
        registry=registry,
        targets=[_target(t) for t in o["targets"]],
        tracking_uri=o["tracking_uri"],
        checked_elsewhere=o["checked_elsewhere"],
        guard=guard,
        request=SigningRequest(o["asked_uri"], o["nonce"], unboxed),
    )
    place = o["to_dir"] or out_dir
    signed.write(place)
    if not o["no_attach"]:
        try:
            signing.attach_statement(signed, tracking_uri=o["tracking_uri"])
        except RegistryError as exc:
            raise RegistryError(f"{exc}; what was signed is in {place}") from exc
    return _print_claims(signed.claims)


def _print_claims(claims: Any) -> int:
    word = "approval" if claims.passed else f"refusal ({claims.outcome})"
    click.echo(f"signed the {word} of models:/{claims.name}/{claims.version} until {claims.expires.date()}")
    for model, target in claims.targets if claims.passed else ():
        click.echo(f"  may be released as {model}@{target}")
    if "data" not in claims.recomputed:
        click.echo("  the data are named by digest only: they could not be read here")
    if claims.advisory:
        click.echo("  advisory: the same user checked and signed; a guarded registry may refuse it", err=True)
    if claims.passed:
        return int(ExitCode.PASSED)
    return int(ExitCode.FAILED if claims.outcome == "failed" else ExitCode.INCONCLUSIVE)


def _target(text: str) -> tuple[str, str]:
    model, at, alias = text.rpartition("@")
    if not (model and at and alias):
        raise UsageError(f"target {text!r} is not MODEL@ALIAS")
    return model, alias


_MARKS = {"fine": "+", "look": "!", "wrong": "x"}
_STORE = click.option("--trust", "store", required=True, type=shared.PATH, help="The trust store file.")


@click.command(short_help="Make and list signing keys.")
@click.argument("private", required=False, type=click.Path(dir_okay=False, path_type=Path))
@_STORE
@shared.shown("--days", default=365, type=click.IntRange(1, 3650), help="How long it counts.")
@click.option("--model", "models", multiple=True, help="Name or pattern of models it may sign for; all if absent.")
def keys(*, private: Path | None, store: Path, days: int, models: tuple[str, ...]) -> int:
    """Write a new key to PRIVATE (mode 600) and trust its public half; without PRIVATE, list all trusted keys.

    Keys that are trusted already count on, until they end or `privgate guard revoke` lets them count no longer.
    """
    from privgate.guard import keys as truststore
    from privgate.guard import statement

    if private is not None and str(private) != "show":  # by which 0.1.0 listed them, and made no key
        outputs.file(store, "--trust")
        held = truststore.TrustStore.load(store) if store.exists() else truststore.TrustStore(())
        signer = truststore.new_key()
        key = truststore.fresh_key(signer.public_key, days=days, models=models or ("*",))
        _write_private(private, signer.private_bytes)
        held.add(key).save(store)
        click.echo(f"key {key.key_id}\n  private: {private}\n  trusted until {key.not_after} in {store}")
        return 0
    for key in truststore.TrustStore.load(store).keys:
        reasons = [key.refusal(role, (key.scope or ("",))[0], statement.now()) for role in key.roles]
        state = "counts" if key.roles and not any(reasons) else next((r for r in reasons if r), "counts for nothing")
        click.echo(f"{key.key_id}  {key.not_before} .. {key.not_after}  {','.join(key.roles)}  {' '.join(key.scope)}")
        click.echo(f"  {state}{f'  ({key.note})' if key.note else ''}")
    return 0


def _write_private(path: Path, content: bytes) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as exc:
        raise UsageError(f"{path} exists; a private key is never overwritten") from exc
    except OSError as exc:
        raise UsageError(f"{path} cannot be written: {exc.strerror}") from exc
    with os.fdopen(handle, "wb") as file:
        file.write(content)


@click.command(short_help="Let a version or a key count no longer.")
@click.argument("what", metavar="URI|KEY")
@_STORE
@click.option("--reason", default="", help="Why; it is said wherever the statement is refused. Not needed for a KEY.")
@shared.tracking_uri
def revoke(*, what: str, store: Path, reason: str, tracking_uri: str | None) -> int:
    """Let all that was signed about URI (models:/name/version) until now count no longer, or all of a KEY.

    A key is named by six digits of its id or more. The guard refuses it at once, verify from now on; privgate guard
    doctor lists what is released on it. Checking and signing again makes another statement, which counts.
    """
    from privgate.guard import statement
    from privgate.guard.keys import TrustStore
    from privgate.registry.client import reader
    from privgate.registry.named import named

    held, now = TrustStore.load(store), statement.now()
    if re.fullmatch("[0-9a-f]{6,64}", what.lower()):
        held.revoke(what.lower(), at=now).save(store)
        click.echo(f"key {held.key(what.lower()).key_id} is revoked; check and sign again what rested on it")
        return 0
    if not what.startswith("models:") or not reason.strip():
        raise UsageError("name six digits of a key's id or more; or models:/name/version, and say why by --reason TEXT")
    version = named(reader(tracking_uri), what)
    if not version.version:
        raise StatementError(f"{what} is no registered version; statements are about versions")
    revoked, note = f"models:/{version.name}/{version.version}", " ".join(reason.split())[:200]
    held.revoke_version(revoked, at=now, note=note).save(store)
    click.echo(f"{revoked} is revoked in {store}; `privgate guard doctor --config FILE` lists what rested on it")
    return 0


@click.group()
def guard() -> None:
    """Guard a registry: check what asks for it, sign, revoke, and ask whether all is well."""


@guard.command(short_help="Ask whether the server is guarded, and everything released verifies.")
@_CONFIG
@shared.tracking_uri
def doctor(*, config: Path, tracking_uri: str | None) -> int:
    """Ask whether the server is guarded, keys count, and everything released verifies. Exit 0 or 4."""
    from privgate.guard.config import Guard
    from privgate.guard.diagnosis import examine

    wrong = 0
    for answer in examine(Guard.load(config), tracking_uri=tracking_uri):
        wrong += answer.state == "wrong"
        click.echo(f"{_MARKS[answer.state]} {plain(answer.text)}")
    click.echo("nothing is wrong" if not wrong else f"{wrong} things are wrong")
    return int(ExitCode.SUBJECT if wrong else ExitCode.PASSED)


for _command in (serve, sign, revoke, keys):
    guard.add_command(_command)
