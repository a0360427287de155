"""``privgate explain``: what there is, and what it means; ``privgate policy``: the same of one policy file."""

import inspect
import re
import textwrap
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

import click

from privgate.cli.console import WIDTH, plain
from privgate.errors import ExitCode, UsageError
from privgate.policy import Policy


def _documentation(thing: Any) -> str:
    kind = thing if inspect.isclass(thing) else type(thing)
    module = inspect.getdoc(inspect.getmodule(kind)) or ""
    own = inspect.getdoc(kind) or ""
    if "- metric:" in own:
        return own
    return module if own in module else f"{module}\n\n{own}"


def _keys(rule: Any) -> str:
    described = {name: key.description for name, key in rule.model_fields.items() if key.description}
    lines = (f"{name}: {text}" for name, text in described.items())
    indented = (textwrap.fill(line, WIDTH, initial_indent="  ", subsequent_indent="      ") for line in lines)
    return "\n".join(["Keys:", *indented])


def entries() -> Iterator[tuple[str, str, str]]:
    """Yield (kind, name, page) of everything that can be named in a policy or appears in a report."""
    from privgate import vocabulary
    from privgate.membership import attacks, numbers
    from privgate.policy import Policy, rules
    from privgate.policy.problems import shipped
    from privgate.theorems.catalogue import CLOSED_FORMS, THEOREMS

    named: list[tuple[str, Any]] = [
        ("rule", rules.ALL),
        ("engine", CLOSED_FORMS),
        ("certificate", THEOREMS),
        ("attack", attacks.ALL),
        ("attack", numbers.ALL),
    ]
    for kind, known in named:
        for entry in known.values() if isinstance(known, dict) else known:
            name = entry.about.name if kind == "rule" else entry.name
            reach = f"\n\n{_keys(entry)}\n\nThe metric reaches from {entry.about.reaches}." if kind == "rule" else ""
            if kind == "attack":
                reach = f"\n\nThreat model: {entry.threat_model}.\n\nSource: {entry.source}."
            page = str(inspect.getdoc(type(entry))) if kind == "attack" else _documentation(entry)
            yield kind, str(name), page + reach
    for word, meaning in (vocabulary.WORDS | vocabulary.SENSITIVITY).items():
        yield "word", word, meaning
    for name in shipped():
        policy = Policy.load(name)
        yield "policy", name, f"{policy.description}\n\n{policy.approves}"


def first_line(page: str) -> str:
    """Return the first sentence of a page."""
    return re.split(r"(?<=[^\W\d_]\.) (?=[A-Z])", page.strip().partition("\n\n")[0].replace("\n", " "))[0]


#: what a person may choose comes first; what privgate chooses is shown with --all
CHOSEN = ("policy", "rule", "attack")


@click.command()
@click.argument("name", nargs=-1, metavar="[NAME]")
@click.option("--list", "lists", is_flag=True, help="List what a policy may name: shipped policies, rules and attacks.")
@click.option("--all", "every", is_flag=True, help="With --list: also what privgate chooses, and the words of reports.")
def explain(*, name: tuple[str, ...], lists: bool, every: bool) -> int:
    """Explain NAME: a rule, engine, certificate, attack, shipped policy or word of a report."""
    if lists:
        _list(every=every)
        return 0
    wanted = " ".join(name)
    pages = [(kind, page) for kind, other, page in entries() if other.casefold() == wanted.casefold()]
    if not pages:
        near = get_close_matches(wanted, [other for _, other, _ in entries()], n=3, cutoff=0.4)
        hint = f"; the nearest names are {', '.join(near)}" if near else ""
        what = f"nothing is called {wanted!r}{hint}" if name else "name what to explain"
        raise UsageError(f"{what}; `privgate explain --list --all` shows all names")
    for kind, page in pages:
        click.secho(f"{wanted} ({kind})", bold=True)
        click.echo(page.strip() + "\n")
    return 0


def _list(*, every: bool) -> None:
    last = ""
    for kind, name, page in sorted(entries(), key=lambda e: CHOSEN.index(e[0]) if e[0] in CHOSEN else len(CHOSEN)):
        if kind not in CHOSEN and not every:
            continue
        if kind != last:
            click.secho({"policy": "policies"}.get(kind, f"{kind}s"), bold=True)
            last = kind
        click.echo(textwrap.fill(first_line(page), WIDTH, initial_indent=f"  {name:<24} ", subsequent_indent=" " * 27))


@click.group()
def policy() -> None:
    """Work with policy files; nothing is trained."""


@policy.command()
@click.argument("name")
def lint(*, name: str) -> int:
    """Check that the policy NAME (a shipped name, or a file) and its suites can be used; exit 2 where they cannot."""
    from privgate.controls import suites

    loaded = Policy.load(name)
    for suite, text in loaded.suites.items():
        file = suite.partition("@")[0]
        suites.build(suites.parse(text, file), file)
    click.echo(plain(f"{loaded.name} version {loaded.version} can be used; {loaded.digest}"))
    return int(ExitCode.PASSED)


@policy.command("explain")
@click.argument("name")
def explain_policy(*, name: str) -> int:
    """Say in plain words what the policy NAME means, rule by rule, and which numbers it inherits."""
    from privgate.policy.resolved_policy import explain as tell

    for line in tell(Policy.load(name)):
        click.echo(plain(line))
    return int(ExitCode.PASSED)
