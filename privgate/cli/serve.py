"""``privgate guard serve``: checks that registered models ask for, without anybody waiting."""

import logging
from pathlib import Path
from typing import Any

import click

from privgate.cli import outputs, shared
from privgate.errors import UsageError

#: options of a check or a promotion that are this server's own to give, or turn a promotion into something else
_OWN = {"--observe", "--nonce", "--to", "--config", "--report-dir", "--policy", "--sign-command"}


@click.command()
@click.option("--config", required=True, type=click.Path(path_type=Path), help="The guard's configuration.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    required=True,
    metavar="NAME|FILE",
    help="What requests may name; repeatable.",
)
@click.option("--work", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder for reports.")
@shared.sign_command
@click.option(
    "--without-isolation",
    is_flag=True,
    help="Run training code of others as this user, who can read what this user can. Only for debugging.",
)
@click.option("--webhook-secret-file", type=click.Path(path_type=Path), help="The secret the webhook was made with.")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8765, show_default=True, type=click.IntRange(0, 65535))
@click.option("--every", default=30.0, show_default=True, type=click.FloatRange(0.1), help="Seconds between looks.")
@click.option(
    "--check-seconds",
    default=86400.0,
    show_default=True,
    type=click.FloatRange(0.1),
    help="Time of one check; then it is ended, and not approved.",
)
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
        raise UsageError(
            f"{', '.join(own)} is about one model and one decision, and no option of all checks of a server"
        )
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
