"""``python -m advice``: search; one row a model, each measured once and kept."""

import json
import time
from pathlib import Path

import click

from advice.subjects import CASES, Case
from privgate import Fleet, Policy, PrivgateError, Subject, log_model, registry
from privgate.advice.search import advise


@click.command()
@click.option("--only", default="", help="Models whose name contains this.")
@click.option("--small", is_flag=True, help="Fewer people where the whole takes more than minutes.")
@click.option("--seconds", default=1800.0, show_default=True, help="Of each search.")
@click.option("--jobs", default=2, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=Path("build/advice"), show_default=True)
def main(only: str, small: bool, seconds: float, jobs: int, out: Path) -> None:  # noqa: FBT001  click's options
    """Measure every model that was not measured yet, and print the table; interrupted, the same command goes on."""
    out.mkdir(parents=True, exist_ok=True)
    rows = out / ("small.jsonl" if small else "rows.jsonl")
    known = {r["name"]: r for r in map(json.loads, rows.read_text().splitlines())} if rows.is_file() else {}
    for name, case in CASES.items():
        if only not in name or name in known:
            continue
        click.echo(name, err=True)
        start = time.monotonic()
        try:
            row = measure(name, case, case.small if small else case.n, seconds=seconds, jobs=jobs, out=out)
        except PrivgateError as exc:
            row = {"said": str(exc)}
        known[name] = {"name": name, "policy": case.policy, "minutes": (time.monotonic() - start) / 60, **row}
        with rows.open("a") as f:
            f.write(json.dumps(known[name]) + "\n")
    click.echo(table([r for r in known.values() if only in r["name"]]))


def measure(name: str, case: Case, n: int, *, seconds: float, jobs: int, out: Path) -> dict[str, object]:
    """Return what the search says of one model."""
    place = out / name.replace(", ", "-").replace(" ", "-")
    place.mkdir(exist_ok=True)
    uri = registry.local_registry(place / "registry")
    recipe, data = case.make(n)
    log_model(recipe, data, registered_model_name="model", tracking_uri=uri, store="artifacts")
    subject = Subject.load("models:/model/1", tracking_uri=uri)
    with Fleet(jobs=jobs, ledger=place / "ledger") as fleet:
        advice = advise(Policy.load(case.policy), subject, fleet=fleet, seconds=seconds, tell=_tell)
    best = advice.best
    return {
        "n": len(subject.data.units),
        "said": advice.lines[-1] if best is None else best.change.says,
        "before": advice.quality,
        "after": "" if best is None else best.quality,
        "gate": "" if advice.verdict is None else advice.verdict.outcome.value,
        "cost": f"{len(advice.tried)} changes, {fleet.calls} trainings",
    }


def _tell(line: str) -> None:
    click.echo(f"  {line}", err=True)


def table(rows: list[dict[str, object]]) -> str:
    """Return the rows as Markdown."""
    names = ("name", "policy", "n", "said", "before", "after", "gate", "cost", "minutes")
    lines = [f"| {' | '.join(names)} |", f"|{' --- |' * len(names)}"]
    for r in rows:
        cells = [f"{r.get(name, ''):.1f}" if name == "minutes" else str(r.get(name, "")) for name in names]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
