"""Options that several commands share, and turning them into a policy, a subject and a fleet."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from privgate.cli import console
from privgate.cli.shared import PRINTED, jobs, ledger, quiet, shown, tracking_uri
from privgate.errors import RegistryError, UsageError
from privgate.evidence.verdict import Outcome
from privgate.policy import Policy
from privgate.report import formats
from privgate.report.schema import read
from privgate.run.run import Budget
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet
from privgate.training.isolation import OFFLINE, WAYS

_COLORS = {Outcome.PASSED: "green", Outcome.WARNED: "yellow", Outcome.INCONCLUSIVE: "yellow", Outcome.FAILED: "red"}

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class CheckInputs:
    """What one check works with."""

    policy: Policy
    subject: Subject
    fleet: Fleet
    limits: Budget


def subject(command: F) -> F:
    """Add the model URI and the registry."""
    return tracking_uri(click.argument("uri")(command))


_NAMED = "A shipped policy's name, or a YAML file."
policy = shown("--policy", "policy_name", default="release-1", metavar="NAME|FILE", help=_NAMED)
_RUN = (
    shown("--report-dir", type=click.Path(file_okay=False), default="privgate-report", help="The report's folder."),
    shown("--format", "form", type=click.Choice(PRINTED), default="text", help="What is printed on stdout; the "
           "report's files are written in any case."),
    click.option("--observe", is_flag=True, help="Record the verdict, approve nothing, exit 0."),
    click.option("--nonce", default="", help="Kept in the report; a signer who is told it signs no other."),
    jobs,
    click.option("--cluster", metavar="tcp://HOST:PORT", help="Dask scheduler to retrain on."),
    ledger,
    click.option("--budget", metavar="30m", help="Most that leaving people out may cost, as 30m, 2h or '100 "
                 "trainings'; people are sampled to fit."),
    click.option("--full", is_flag=True, help="Measure everybody, though the verdict is decided by the first few."),
    click.option("--seeds", type=click.IntRange(min=1), help="Fewest other seeds to compare with."),
    shown("--time-limit", type=float, default=600.0, help="Seconds for one training."),
    shown("--isolation", type=click.Choice((*WAYS, OFFLINE)), default="auto", help="Where training code runs: "
           "auto in a sandbox where one can be made; bubblewrap in one, or not at all; none as you, for debugging; "
           "offline in one without the network that its recipe declares."),
    click.option("--file-not-downloadable", "file_withheld", is_flag=True, help="State that nobody who may ask the "
                 "model can get its file. A guard must say so, too."),
    click.option("--hash-key-file", type=click.Path(dir_okay=False), help="Key of the hashes that stand for people."),
    quiet,
)  # fmt: skip


def run(command: F) -> F:
    """Add where the report goes and what the run may cost."""
    for option in reversed(_RUN):
        command = option(command)
    return command


def build(uri: str, settings: dict[str, Any], *, writes: bool = True) -> CheckInputs:
    """Return policy, subject and fleet; the policy first, then whatever is written: unusable ones cost nothing."""
    from privgate import registry
    from privgate.cli import outputs

    chosen = Policy.load(settings["policy_name"])
    if writes:
        outputs.check(settings)
    limits = Budget(
        **budget(settings["budget"]),
        shadow_models=max(Budget().shadow_models, chosen.audit.min_shadow_models),
        seeds=settings["seeds"],
        full=settings["full"],
        file_withheld=settings["file_withheld"],
    )
    offline = settings["isolation"] == OFFLINE
    fleet = Fleet(
        jobs=settings["jobs"],
        cluster=settings["cluster"],
        ledger=settings["ledger"],
        time_limit=settings["time_limit"],
        isolate="bubblewrap" if offline else settings["isolation"],
        signable=True,
        network=not offline,
        progress=None if settings["quiet"] else lambda done, n, left: console.progress(done, n, left, fleet.activity),
    )
    if writes:
        if not settings["quiet"]:
            console.note(f"reading {uri}")
        fleet.begin()
    try:
        loaded = registry.load_subject(uri, tracking_uri=settings["tracking_uri"])
    except RegistryError as exc:
        hint = "" if re.fullmatch("models:/[^/]+[/@].+", uri) else "; name a version: models:/NAME/VERSION"
        raise RegistryError(f"{exc}{hint}") from exc
    return CheckInputs(chosen, loaded, fleet, limits)


def budget(text: str | None) -> dict[str, Any]:
    """Return what leaving people out may cost, as ``Budget`` takes it: a number of trainings, or seconds."""
    if text is None:
        return {}
    if match := re.fullmatch(r"\s*(\d*[1-9]\d*)\s*trainings?\s*", text):
        return {"max_retrains": int(match[1])}
    return {"budget_seconds": duration(text)}


def duration(text: str) -> float:
    """Return seconds of "90s", "30m", "2h" or a plain number of seconds."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", text)
    if not match or float(match[1]) <= 0:
        raise UsageError(f"--budget {text!r} is no duration; write 90s, 30m or 2h")
    return float(match[1]) * {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}[match[2]]


def print_plan(run: CheckInputs) -> int:
    """Print what a check would cost and what it can never conclude; the one training for it is remembered."""
    from privgate.advice.search import search_command
    from privgate.check.plan import costs

    planned = costs(run.policy, run.subject, fleet=run.fleet, limits=run.limits)
    for line in planned.said:
        console.say(line)
    if not planned.ends and (command := search_command(run.subject, run.policy)):
        console.say(f"if it refuses: {command}")
    return 0


def print_decision(document: Mapping[str, Any], where: Path) -> None:
    """Print one screen: the decision, a line a question, what to do next, and where the report is.

    Everything comes from the report document, in which people are keyed hashes: a CI log is read by many.
    """
    report_document = read(document)
    head, *lines = formats.lines(report_document)
    click.secho(console.wrapped(console.plain(head)), fg=_COLORS[report_document.outcome], bold=True)
    for line in lines:
        console.say(line)
    click.echo(f"  report: {where}")
