"""``privgate guard sign``: from a written report to signed statements; meant for another user than ``check``."""

from pathlib import Path
from typing import Any

import click

from privgate.cli import outputs, shared
from privgate.errors import ExitCode, RegistryError, UsageError


@click.command()
@click.argument("out_dir", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--policy", "policy_name", required=True, metavar="NAME|FILE", help="The signer's own copy of the policy."
)
@click.option("--config", type=click.Path(path_type=Path), help="The guard's configuration; gives registry and trust.")
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
@click.option("--key", "key_file", type=click.Path(path_type=Path), help="Private key, PEM, or a URI of a key service.")
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
