"""``privgate list`` and ``privgate explain``: what there is, and what it means."""

import inspect
import re
import textwrap
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

import click

from privgate.cli.console import WIDTH
from privgate.errors import UsageError


def _documentation(thing: Any) -> str:
    kind = thing if inspect.isclass(thing) else type(thing)
    module = inspect.getdoc(inspect.getmodule(kind)) or ""
    own = inspect.getdoc(kind) or ""
    if "- metric:" in own:
        return own
    return module if own in module else f"{module}\n\n{own}"


def entries() -> Iterator[tuple[str, str, str]]:
    """Yield (kind, name, page) of everything that can be named in a policy or appears in a report."""
    from privgate import vocabulary
    from privgate.influence import published
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
            reach = f"\n\nThe metric reaches from {entry.about.reaches}." if kind == "rule" else ""
            if kind == "attack":
                reach = f"\n\nThreat model: {entry.threat_model}.\n\nSource: {entry.source}."
            yield kind, str(name), _documentation(entry) + reach
    for proposition in published.ALL:
        yield "proposition", proposition.name, proposition.page
    for word in (*vocabulary.WORDS, *vocabulary.TERMS, vocabulary.SENSITIVITY):
        avoided = f"\n\nWe do not say: {', '.join(word.instead_of)}." if word.instead_of else ""
        yield "word", word.name, word.meaning + avoided
    for name in shipped():
        yield "policy", name, str(Policy.load(name).resolved.get("description", ""))


def first_line(page: str) -> str:
    """Return the first sentence of a page."""
    return re.split(r"(?<=[^\W\d_]\.) (?=[A-Z])", page.strip().partition("\n\n")[0].replace("\n", " "))[0]


#: what a person may choose comes first; what privgate chooses is shown with --all
CHOSEN = ("policy", "rule", "attack")


@click.command(name="list")
@click.option("--all", "every", is_flag=True, help="Also what privgate chooses: engines, certificates, words.")
def list_(*, every: bool) -> int:
    """List what a policy may name: shipped policies to extend, rules, and attacks."""
    last, found = "", sorted(entries(), key=lambda e: CHOSEN.index(e[0]) if e[0] in CHOSEN else len(CHOSEN))
    for kind, name, page in found:
        if kind not in CHOSEN and not every:
            continue
        if kind != last:
            click.secho({"policy": "policies"}.get(kind, f"{kind}s"), bold=True)
            last = kind
        click.echo(textwrap.fill(first_line(page), WIDTH, initial_indent=f"  {name:<24} ", subsequent_indent=" " * 27))
    return 0


@click.command()
@click.argument("name", nargs=-1, required=True, metavar="NAME")
def explain(*, name: tuple[str, ...]) -> int:
    """Explain NAME: a rule, engine, certificate, attack, shipped policy or word of a report."""
    wanted = " ".join(name)
    found = [(kind, page) for kind, other, page in entries() if other.casefold() == wanted.casefold()]
    if not found:
        near = get_close_matches(wanted, [other for _, other, _ in entries()], n=3, cutoff=0.4)
        hint = f"; the nearest names are {', '.join(near)}" if near else ""
        raise UsageError(f"nothing is called {wanted!r}{hint}; `privgate list --all` shows all names")
    for kind, page in found:
        click.secho(f"{wanted} ({kind})", bold=True)
        click.echo(page.strip() + "\n")
    return 0
