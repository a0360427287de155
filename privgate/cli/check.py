"""``privgate check``, ``promote``, ``advise`` and ``adopt``: what judges a version, or readies one for it."""

import contextlib
import importlib
import json
import os
import re
import secrets
import shlex
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import click

from privgate.cli import console, options, shared
from privgate.cli.report import read
from privgate.errors import ExitCode, PrivgateError, RegistryError, StatementError, SubjectError, UsageError
from privgate.evidence.verdict import Verdict
from privgate.policy import Policy
from privgate.subject import sources
from privgate.subject.release import Form, Release, Serve
from privgate.subject.subject import Subject

#: how long the signer command may take
SIGN_SECONDS = 1800.0
#: targets "model@alias" that are safe as a shell word
_SHELL_SAFE = re.compile(r"[\w.@+-]+")
#: the first word of each refusal by a guarded store
_REFUSAL = "privgate:"


@click.command()
@options.subject
@options.policy
@options.run
@click.option("--no-attach", is_flag=True, help="Write the report to --report-dir only, nothing to the registry.")
@click.option("--plan", is_flag=True, help="Print what the check would cost and what it can conclude, then stop.")
@click.option("--advise", "advises", is_flag=True, help="Where it blocks, search for a change that is approved.")
@click.option("--recompute", type=shared.PATH, metavar="FOLDER", help="Train nothing: make a report's limits again.")
def check(*, uri: str, no_attach: bool, plan: bool, advises: bool, recompute: Path | None, **settings: Any) -> int:
    """Judge the model version URI by a policy.

    URI is models:/name/version, models:/name@alias, models:/<model_id>, runs:/<run_id>/<name> or a run id. With
    --recompute, the certificates of the check whose report is in FOLDER are made again from the data.
    """
    if plan:
        return options.print_plan(options.build(uri, settings, writes=False))
    if recompute is not None:
        from privgate.check import gate

        given = options.build(uri, settings, writes=False)
        for sentence in gate.again(given.subject, read(recompute / "report.json"), recompute, given.policy):
            click.echo(console.plain(f"recomputed: {sentence}"))
        return 0
    verdict, _ = _check(uri, attach=not no_attach, settings=settings | {"advises": advises})
    return int(verdict.exit_code)


@click.command()
@options.subject
@click.option("--to", "alias", required=True, metavar="ALIAS", help="Alias to set if the model is approved.")
@click.option("--config", type=shared.PATH, help="The guard's configuration; what is signed is not checked again.")
@click.option("--forward-only", is_flag=True, help="Leave the alias where a later version has it.")
@shared.sign_command
@options.policy
@options.run
def promote(*, uri: str, alias: str, sign_command: str | None, **settings: Any) -> int:
    """Check the model version URI, attach the report, have it signed, and set the alias only if it is approved.

    Without a guarded registry store the verdict is advice: other clients can still set the alias. A guarded store, and
    --config, ask for a signed statement. --sign-command starts the signer, who alone holds the key. Without it an
    approved version ends with exit code 6, unsigned. A rerun checks again, and trains nothing that is remembered.
    """
    if settings["config"] is not None:
        _load_guard(uri, alias, settings)  # refuse a wrong configuration or policy before training
    if settings["config"] is not None and not settings["observe"]:
        with contextlib.suppress(StatementError):  # no valid statement yet: check the version
            return _set_signed_alias(uri, alias, settings)
    if sign_command is not None:
        settings["nonce"] = settings["nonce"] or secrets.token_hex(16)
    verdict, subject = _check(uri, attach=True, settings=settings, alias=alias)
    if not verdict.approved:
        why = "the run only observes" if verdict.observed else f"the verdict is {verdict.decision.text}"
        click.echo(f"not promoted: {why}; @{alias} is unchanged", err=True)
        return int(verdict.exit_code)
    try:
        return _set_alias(subject, alias, settings)
    except (RegistryError, StatementError) as exc:
        if isinstance(exc, RegistryError) and _REFUSAL not in str(exc):
            raise
        if sign_command is None:
            folder, policy = shlex.quote(settings["report_dir"]), shlex.quote(settings["policy_name"])
            config = shlex.quote(str(settings["config"] or "guard.yaml"))
            how = f"privgate guard sign {folder} --policy {policy} --config {config} --model {subject.uri} --key FILE"
            then = f"sign it as another user: {how}; then promote it with --config {config}, which checks nothing again"
            click.echo(console.plain(f"approved, not promoted: {exc}; {then}"), err=True)
            return int(ExitCode.UNSIGNED)
    _call_signer(sign_command, subject, alias, settings)
    return _set_alias(subject, alias, settings)


def _set_alias(subject: Subject, alias: str, settings: dict[str, Any]) -> int:
    from privgate import registry

    if settings["config"] is not None:
        return _set_signed_alias(_version_uri(subject), alias, settings)
    where, forward = settings["tracking_uri"], settings["forward_only"]
    holder = registry.promote(subject, alias, tracking_uri=where, forward_only=forward)
    return _print_promotion(_version_uri(subject), holder, alias, settings)


def _load_guard(uri: str, alias: str, settings: dict[str, Any]) -> tuple[Any, Any, str]:
    from privgate.guard.config import Guard
    from privgate.registry.client import connect
    from privgate.registry.named import named

    guard, client = Guard.load(settings["config"]), connect(settings["tracking_uri"])
    name = named(client, uri).name
    guard.demands(alias, name, Policy.load(settings["policy_name"]).digest)
    return guard, client, name


def _set_signed_alias(uri: str, alias: str, settings: dict[str, Any]) -> int:
    from privgate.guard.verification import verify
    from privgate.registry.attachments import move_alias

    guard, client, name = _load_guard(uri, alias, settings)
    exact = verify(uri, guard, target=alias, tracking_uri=settings["tracking_uri"]).uri
    holder = move_alias(client, name, exact.rpartition("/")[2], alias, forward_only=settings["forward_only"])
    return _print_promotion(exact, holder, alias, settings)


def _print_promotion(uri: str, holder: str, alias: str, settings: dict[str, Any]) -> int:
    said = f"promoted: {uri} is now @{alias}"
    if uri.rpartition("/")[2] != holder:
        said = f"approved, not promoted: @{alias} stays with the later version {holder}"
    # JSON on stdout stays one document
    click.echo(console.plain(said), err=settings["form"] != "text")
    return int(ExitCode.PASSED)


def _version_uri(subject: Subject) -> str:
    return f"models:/{subject.name}/{subject.version}"


def _call_signer(command: str, subject: Subject, alias: str, settings: dict[str, Any]) -> None:
    """Run the signer's command without a shell or secrets."""
    from privgate.serve import environment

    name = str(subject.name)
    named = {"out": settings["report_dir"], "policy": settings["policy_name"], "nonce": settings["nonce"]}
    named |= {"uri": _version_uri(subject), "model": name, "version": subject.version, "target": f"{name}@{alias}"}
    words = shlex.split(command)
    if not _SHELL_SAFE.fullmatch(odd := named["target"]):
        raise UsageError(
            f"{odd!r} cannot be handed to --sign-command, behind which a shell may stand: a name may have letters, "
            "digits and . _ + - there; sign it by hand"
        )
    for key, value in named.items():
        # model names come from the registry: no value may bring in another placeholder
        plain = str(value).replace("{", "").replace("}", "")
        words = [word.replace(f"{{{key}}}", plain) for word in words]
    console.note(f"handing the report to the signer, {SIGN_SECONDS:g} s at most")
    around: dict[str, Any] = {"env": environment("PRIVGATE_LEDGER_KEY"), "timeout": SIGN_SECONDS}
    try:  # the operator's own command, without a shell
        subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=True, **around)  # noqa: S603
    except subprocess.CalledProcessError as exc:
        lines = exc.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        raise StatementError(f"the signer command ended with {exc.returncode}: {lines[-1][:300]}") from exc
    except (OSError, subprocess.SubprocessError) as exc:
        raise StatementError(f"the signer command did not run ({type(exc).__name__}); run it by hand") from exc


def _refuse_target(subject: Subject, alias: str) -> None:
    if not re.fullmatch(r"[\w-]{1,255}", alias, re.ASCII) or re.fullmatch(r"latest|v\d+", alias, re.IGNORECASE):
        raise UsageError(f"--to {alias!r} is no alias: letters, digits, '_' and '-', not 'latest' or such as 'v1'")
    if not subject.version:
        raise UsageError(f"{subject.uri or subject.name} is no registered version; only versions have aliases")


def _check(uri: str, *, attach: bool, settings: dict[str, Any], alias: str | None = None) -> tuple[Verdict, Subject]:
    """Evaluate, write the report, then attach it; return the verdict and the version that was checked."""
    from privgate import registry, report
    from privgate.advice.search import advise as search
    from privgate.advice.search import evaluate
    from privgate.evaluation.notebook import load_hash_key, with_context
    from privgate.registry.attachments import refuse_unattachable

    run = options.build(uri, settings)
    if alias is not None:
        _refuse_target(run.subject, alias)
    folder = Path(settings["report_dir"]).expanduser()
    if attach:
        if not run.subject.detail.get("model_id"):
            raise UsageError(f"{uri} has no registry to attach the report to; add --no-attach")
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
    verdict = with_context(verdict, click.get_current_context().default_map or {})  # keys that have no option
    approved, place, before = f"models:/{run.subject.name}@production", settings.get("config"), None
    if place or "PRIVGATE_GUARD" in os.environ:  # else nothing was signed, and importing what verifies takes long
        from privgate.guard.verification import approved_report

        before = approved_report(approved, config=place, tracking_uri=settings["tracking_uri"])
    try:
        report.write(verdict, folder, hash_key=load_hash_key(settings["hash_key_file"]), baseline=before)
    except OSError as exc:  # options.build wrote there before training: the disk is full now
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
        advice = search(run.policy, run.subject, fleet=run.fleet, limits=run.limits, verdict=verdict, tell=console.note)
        for line in advice.lines:
            click.echo(console.plain(line), err=settings["form"] != "text")
    return verdict, run.subject


@click.command()
@options.subject
@options.policy
@click.option("--budget", default="30m", show_default=True, metavar="30m", help="Wall time of the search.")
@shared.jobs
@shared.ledger
@click.option("--file-not-downloadable", "file_withheld", is_flag=True, help="As check was told it.")
@shared.quiet
@shared.as_json
def advise(*, uri: str, as_json: bool, **settings: Any) -> int:
    """Search for a change of one parameter of the model URI that keeps the policy; print it as a diff of the recipe.

    The policy's rules measure each change, with cross-validated usefulness beside it. The most useful one that passes
    is checked again as a whole, with other randomness. Exit 0 if that approves it, or the model as it stands keeps the
    policy; else 1. What was trained is remembered: an interrupted search goes on.
    """
    from privgate.advice.search import advise as search
    from privgate.cli import outputs

    seconds = options.duration(settings["budget"])
    outputs.ledger(settings["ledger"])
    usual = {"budget": None, "seeds": None, "full": False, "isolation": "auto", "cluster": None, "time_limit": 3600.0}
    run = options.build(uri, settings | usual, writes=False)
    tell = (lambda _: None) if settings["quiet"] else console.note
    with run.fleet:
        advice = search(run.policy, run.subject, fleet=run.fleet, limits=run.limits, seconds=seconds, tell=tell)
    lines = [json.dumps(advice.payload(), indent=1)] if as_json else map(console.plain, advice.lines)
    click.echo("\n".join(lines))
    return 0 if advice.approved else 1


@click.command()
@options.subject
@click.option("--recipe", "recipe_name", metavar="MODULE:NAME", help="A Recipe, or a training function.")
@click.option("--data", "data_name", metavar="MODULE:NAME", help="TrainingData, or what returns them.")
@click.option("--seed", type=click.IntRange(min=0), default=None, help="Of the recipe, if NAME is a function.")
@click.option("--store", default=None, metavar="FOLDER|URI|artifacts", help="Where the training data may be kept.")
@shared.shown("--release", "form", type=click.Choice(get_args(Form)), default="probabilities", help="What is served.")
@click.option("--serve", type=click.Choice(get_args(Serve)), help="Open it here, and register it again to serve these.")
@click.option("--one-record-each", is_flag=True, help="Declare that each record is a person of its own.")
@click.option("--groups", metavar="COLUMN", help="Declare which column of the data names the person of each record.")
def adopt(*, uri: str, recipe_name: str | None, data_name: str | None, groups: str | None, **o: Any) -> int:
    """Attach a recipe to the version URI, which MLflow 2 or a script without privgate has registered.

    The modules are yours and are imported here, from this folder too. A version that is no logged model of MLflow 3
    becomes a new version of the same bytes; the old one stays as it is. A version that has a recipe needs neither
    --recipe nor --data to be told whose its records are; check it again afterwards.
    """
    from privgate import registry
    from privgate.subject.data import TrainingData
    from privgate.subject.recipe import Recipe

    if o["one_record_each"] and groups:
        raise UsageError("--one-record-each and --groups contradict each other; give one of them")
    declared = "one record each" if o["one_record_each"] else f"groups {groups}" if groups else ""
    if recipe_name is None and data_name is None and declared and o["serve"] is None:
        registry.declare_people(uri, declared, tracking_uri=o["tracking_uri"])
        click.echo(console.plain(f"{uri} says whose its records are ({declared}); now: privgate check {uri}"))
        return 0
    if recipe_name is None or data_name is None:
        raise UsageError("give --recipe and --data; a version that has them takes --one-record-each or --groups alone")
    recipe, data = import_named(recipe_name, "--recipe"), import_named(data_name, "--data")
    if callable(data) and not isinstance(data, TrainingData):
        data = _ran(data, f"--data {data_name!r}")
    if not isinstance(recipe, Recipe):
        recipe = Recipe(recipe, seed=o["seed"])
    elif o["seed"] is not None:
        raise UsageError(f"--seed: {recipe_name} is a Recipe, which has its own")
    if not isinstance(data, TrainingData):
        raise UsageError(f"--data: {data_name} is a {type(data).__name__}, not TrainingData")
    if declared:
        data = data.declare_people(declared, groups=data.read_column(groups) if groups else None)
    about = {k: o[k] for k in ("tracking_uri", "store", "serve")}
    adopted = registry.adopt(uri, recipe, data, release=Release(o["form"]), **about)
    holds = f"serves {o['serve']} of the model of" if o["serve"] else "holds the bytes of"
    click.echo(console.plain(f"{adopted} {holds} {uri} and has a recipe; now: privgate check {adopted}"))
    return 0


def import_named(name: str, option: str) -> Any:
    """Return what ``module:name`` names, from the working folder too. ``UsageError``: it cannot be imported."""
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise UsageError(f"{option} {name!r} is no name; write module:name")
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(_ran(lambda: importlib.import_module(module), f"{option} {name!r}"), attribute)
    except (ModuleNotFoundError, AttributeError) as exc:
        raise UsageError(f"{option} {name!r} cannot be imported: {exc}") from exc
    finally:
        sys.path.remove(str(Path.cwd()))


def _ran(owners: Callable[[], Any], what: str) -> Any:
    """Return what the owner's own code gives; an error in it is the owner's, and is told with its place."""
    try:
        return owners()
    except PrivgateError:
        raise
    except (Exception, SystemExit) as exc:
        frames = [f for f in traceback.extract_tb(exc.__traceback__) if f.filename != __file__]
        own = [f for f in frames if not f.filename.startswith("<") and not sources.is_library(Path(f.filename))]
        if isinstance(exc, ModuleNotFoundError) and not own:  # nothing of the owner's has run
            raise
        where = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
        raise SubjectError(f"{what} raised {type(exc).__name__}: {exc}{where}; mend it and adopt again") from exc
