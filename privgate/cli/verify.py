"""``privgate verify``, and all of ``privgate-verify``: for deployment scripts, without a training environment."""

from pathlib import Path
from typing import Any

import click

from privgate.cli import shared
from privgate.errors import UsageError

_PATH = shared.PATH


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.argument("what", metavar="URI|FOLDER")
@click.option("--config", type=_PATH, required=True, help="The guard's configuration.")
@click.option("--target", metavar="ALIAS", help="What it is to serve as; the URI's alias if absent.")
@click.option("--to", type=_PATH, help="Hand the verified files over in this new folder.")
@click.option("--statement", type=_PATH, help="For a FOLDER: the verdict that was signed (verdict.dsse.json).")
@click.option("--model", metavar="NAME", help="For a FOLDER: the registered model it is to serve as.")
@click.option("--recompute", type=_PATH, metavar="FOLDER", help="Make theorems' limits again, of a check's folder.")
@shared.tracking_uri
def verify(*, what: str, **o: Any) -> int:
    """Verify that URI, or what was downloaded to FOLDER, may serve now: its statement and every byte. Exit 0 or 4.

    Without --to it prints the place and digest to pin: what is downloaded later, or by name, is another download.
    """
    from privgate.guard.config import Guard

    guard, target, to = Guard.load(o["config"]), o["target"], o["to"]
    if what.startswith("models:"):
        if o["statement"] is not None or o["model"] is not None:
            raise UsageError("--statement and --model are for a folder; a registry knows both itself")
        from privgate.guard.verification import verify as verified

        checked = verified(what, guard, target=target, tracking_uri=o["tracking_uri"], to=to)
        place, claims, n_files = checked.uri, checked.claims, checked.n_files
        # where the files lie: no name that may mean something else a moment later
        pin = f"handed over: {to}" if to is not None else f"pin: {claims.storage}"
    else:
        if o["statement"] is None or target is None or to is not None:
            raise UsageError(f"{what!r} is no models:/ URI; a folder takes --statement and --target, and no --to")
        from privgate.guard.verification import verify_folder

        claims, n_files = verify_folder(Path(what), o["statement"], guard, target=target, model=o["model"])
        pin, place = f"folder: {what}", f"{what} holds models:/{claims.name}/{claims.version}"
    sentences = []
    if o["recompute"] is not None:
        from privgate.guard.verification import recomputed

        sentences = recomputed(claims, o["recompute"])  # before anything is called verified
    click.echo(
        f"verified: {place}, {n_files} files, {claims.outcome} under {claims.policy} "
        f"on {claims.decided.date()}, valid until {claims.expires.date()}"
    )
    click.echo(f"  {pin}\n  digest: {claims.files}\n  report: {claims.report}")
    for sentence in sentences:
        click.echo(f"  recomputed: {sentence}")
    return 0
