"""``privgate remove-risky``: which people to leave out so that what the model tells about anybody keeps the limit."""

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray

from privgate.cli import console, options, outputs, shared
from privgate.errors import UsageError

if TYPE_CHECKING:
    from privgate.influence.risky_removal import RiskyRemoval

_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(name="remove-risky")
@options.subject
@click.option("--limit", type=float, default=1.0, show_default=True, help="Largest DTP wanted, nats.")
@click.option("--budget", type=click.IntRange(min=1), default=None, help="Most people to remove; a tenth if absent.")
@click.option(
    "--patience",
    type=click.IntRange(min=1),
    default=None,
    help="Stop after so many removals without a new best; 1 stops when it first rises. Never if absent.",
)
@click.option(
    "--out", type=_FOLDER, default=None, help="Folder for removed.csv (names people!), curve.json, curve.svg."
)
@shared.jobs
@shared.ledger
@shared.quiet
def remove_risky(
    *,
    uri: str,
    tracking_uri: str | None,
    limit: float,
    budget: int | None,
    patience: int | None,
    out: Path | None,
    jobs: int | None,
    ledger: str | None,
    quiet: bool,
) -> int:
    """Find whom to leave out of training so that the largest DTP falls to --limit.

    The unit that tells most goes first and everything is recomputed; the result is the best set seen. Who was removed
    is itself telling: keep the list with the data, train again on the rest, and check again. Exit 0 if the limit is
    kept, 1 if not.
    """
    from privgate import registry
    from privgate.influence import risky_removal
    from privgate.training.fleet import Fleet

    if not limit >= 0:
        raise UsageError(f"--limit must be at least 0, not {limit!r}")
    if out is not None:
        outputs.folder(out, "--out")
    outputs.ledger(ledger)
    subject = registry.load_subject(uri, tracking_uri=tracking_uri)
    total = max(1, len(subject.data.units) // 10) if budget is None else budget

    def progress(done: int, high: float) -> None:
        console.progress(done, total, float("nan"), f"removing, largest now {high:.4g}")

    with Fleet(jobs=jobs, ledger=ledger) as fleet:
        found = risky_removal.remove_risky(
            subject, limit=limit, budget=total, patience=patience, fleet=fleet, progress=None if quiet else progress
        )
    kept = bool(found.upper[found.best] <= limit)
    click.secho(
        f"{len(found.removed)} of {len(subject.data.units)} people removed: largest from {found.upper[0]:.4g} to "
        f"{found.upper[found.best]:.4g} nats; {found.stopped}",
        bold=True,
    )
    click.echo(f"  what was measured: {found.meaning}")
    if found.best < len(found.order):
        click.echo(f"  {len(found.order)} removals were tried; later ones made it worse again")
    if out is not None:
        _write(out, found, subject.data.unit_names, limit)
    return 0 if kept else 1


def _write(out: Path, found: "RiskyRemoval", names: NDArray[Any], limit: float) -> None:
    from privgate.influence import risky_removal

    out.mkdir(parents=True, exist_ok=True)
    with (out / "removed.csv").open("w", newline="", encoding="utf-8") as f:
        table = csv.writer(f)
        table.writerow(["step", "unit"])
        table.writerows([k + 1, str(names[u])] for k, u in enumerate(found.removed))
    curve = {
        "limit": limit,
        "best": found.best,
        "stopped": found.stopped,
        "meaning": found.meaning,
        "lower": [v if np.isfinite(v) else None for v in found.lower.tolist()],
        "upper": [v if np.isfinite(v) else None for v in found.upper.tolist()],
    }
    (out / "curve.json").write_text(json.dumps(curve, indent=1), encoding="utf-8")
    (out / "curve.svg").write_text(risky_removal.picture(found, limit=limit), encoding="utf-8")
    click.echo(f"  wrote {out / 'removed.csv'} (it names people: keep it with the data), curve.json, curve.svg")
