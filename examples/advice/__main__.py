"""``python -m advice``: search, apply, check; one row a model, each measured once and kept."""

import json
import time
from pathlib import Path

import click
from privgate.advice.advice_page import page
from privgate.advice.advice_search import Search
from privgate.advice.apply import apply

from advice.subjects import CASES, Case
from privgate import Budget, Fleet, Policy, PrivgateError, Subject, evaluate, log_model, registry


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
            found = measured(name, case, case.small if small else case.n, seconds=seconds, jobs=jobs, out=out)
        except PrivgateError as exc:
            found = {"said": str(exc)}
        known[name] = {"name": name, "policy": case.policy, "minutes": (time.monotonic() - start) / 60, **found}
        with rows.open("a") as f:
            f.write(json.dumps(known[name]) + "\n")
    click.echo(table([r for r in known.values() if only in r["name"]]))


def measured(name: str, case: Case, n: int, *, seconds: float, jobs: int, out: Path) -> dict[str, object]:
    """Return what became of one model: searched, the best applied, and that version checked."""
    place = out / name.replace(", ", "-").replace(" ", "-")
    place.mkdir(exist_ok=True)
    uri = registry.local_registry(place / "registry")
    recipe, data = case.make(n)
    log_model(recipe, data, registered_model_name="model", tracking_uri=uri, store="artifacts")
    subject = Subject.load("models:/model/1", tracking_uri=uri)
    with Fleet(jobs=jobs, ledger=place / "ledger") as fleet:
        policy = Policy.load(case.policy)
        search = Search(policy, subject, fleet, Budget(), case.measure, seconds=seconds, tell=_told)
        advice = search.advice()
        advice.write(place / "advice.json")
        (place / "advice.html").write_text(page(advice), encoding="utf-8")
        now, games = advice.points[0], [p for p in advice.points[1:] if p.change.kind == "release"]
        row: dict[str, object] = {
            "n": len(subject.data.units),
            "measure": advice.measure,
            "before": [now.value, now.limit, now.useful],
            "candidates": len(advice.points) - 1,
            "trainings": sum(p.trainings for p in advice.points),
            "releases that pass": f"{sum(p.passes for p in games)} of {len(games)}",
            "left": list(advice.left),
        }
        if not advice.best:
            return {**row, "said": "nothing passes"}
        best = advice.best[0]
        _, info = apply(advice, best.number, tracking_uri=uri)
        made = Subject.load(f"models:/model/{info.registered_model_version}", tracking_uri=uri)
        verdict = evaluate(policy, made, fleet=fleet, limits=Budget())
    return {
        **row,
        "said": best.change.says,
        "after": [best.value, best.confirmed_value, best.useful, best.confirmed_useful],
        "gate": verdict.outcome.value,
        "all calls": fleet.calls,
    }


def _told(line: str) -> None:
    click.echo(f"  {line}", err=True)


def table(rows: list[dict[str, object]]) -> str:
    """Return the rows as Markdown."""
    head = ("model, policy", "people", "risk", "change", "risk (search, whole check)", "usefulness", "the gate", "cost")
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for r in rows:
        before, after = r.get("before"), r.get("after")
        if not isinstance(before, list):
            lines.append(f"| {r['name']} | | | {r['said']} | | | | |")
            continue
        then = after if isinstance(after, list) else (float("nan"),) * 4
        cells = (
            f"{r['name']} ({r['policy']})",
            f"{r['n']}",
            f"{before[0]:.3g} of {before[1]:g}",
            f"{r['said']}",
            f"{then[0]:.3g}, {then[1]:.3g}",
            f"{r['measure']} {before[2]:.4f} to {then[2]:.4f}, on other folds {then[3]:.4f}",
            f"{r.get('gate', '')}",
            f"{r['candidates']} candidates, {r.get('all calls', r['trainings'])} trainings, {r['minutes']:.1f} min",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
