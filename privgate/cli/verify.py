"""``privgate verify``: for deployment scripts, without a training environment."""

from pathlib import Path

import click

from privgate.errors import UsageError


@click.command()
@click.argument("uri")
@click.option("--config", type=click.Path(path_type=Path), help="The guard's configuration.")
@click.option("--trust", "store", type=click.Path(path_type=Path), help="Trust store, where there is no --config.")
@click.option("--registry-id", metavar="ID", help="Id of the registry, where there is no --config.")
@click.option("--policy", "policy_name", metavar="NAME|FILE", help="The policy that must have been applied.")
@click.option("--target", metavar="ALIAS", help="What it is to serve as; the URI's alias if absent.")
@click.option("--to", type=click.Path(path_type=Path), help="Hand the verified files over in this new folder.")
@click.option("--accept-advisory", is_flag=True, help="Accept statements of a user who also ran the check.")
@click.option("--tracking-uri", default=None, help="MLflow server or store; MLFLOW_TRACKING_URI if absent.")
def verify(
    *,
    uri: str,
    config: Path | None,
    store: Path | None,
    registry_id: str | None,
    policy_name: str | None,
    target: str | None,
    to: Path | None,
    accept_advisory: bool,
    tracking_uri: str | None,
) -> int:
    """Verify that URI may serve now: its statement, and every byte of its files. Exit 0 or 4.

    Without --to it prints the place and digest to pin: what is downloaded later, or by name, is another download.
    """
    from privgate.guard.config import Guard
    from privgate.guard.trust import Terms, TrustStore
    from privgate.guard.verifying import verify as verified
    from privgate.policy import Policy

    policy = Policy.load(policy_name) if policy_name is not None else None
    if config is not None:
        guard = Guard.load(config)
    elif store is not None and registry_id is not None and policy is not None:
        guard = Guard(registry_id, TrustStore.load(store), {}, frozenset(), frozenset(), ())
    else:
        raise UsageError("give --config FILE, or all of --trust, --registry-id and --policy")
    terms = None
    if policy is not None:
        terms = Terms(guard.registry, policy.digest, policy.name, guard.accept_advisory or accept_advisory)
    found = verified(uri, guard, target=target, terms=terms, tracking_uri=tracking_uri, to=to)
    claims = found.claims
    click.echo(
        f"verified: {found.uri}, {found.n_files} files, {claims.outcome} under {claims.policy} "
        f"on {claims.decided.date()}, valid until {claims.expires.date()}"
    )
    click.echo(f"  {'handed over: ' + str(to) if to is not None else 'pin: ' + found.pin}\n  digest: {claims.files}")
    return 0
