"""What was found about sensitive features, for the section on attacks."""

from collections.abc import Sequence

from privgate.evidence import AttributeGuesses, AttributeResult, AttributesPart
from privgate.report.blocks import Block, Heading, TableBlock, Text
from privgate.report.text import number, percent, plain

COLUMNS = ("Who guesses", "Of members", "Of people outside", "Difference, with its interval")


def blocks(part: AttributesPart | None) -> list[Block]:
    """Return one table a feature: what is guessed of members, of others, and by anybody without the model."""
    if part is None:
        return []
    made: list[Block] = [Heading("Sensitive features")]
    for found in part.attributes:
        rows = [_row(g) for g in (*found.adversaries, found.without_model)]
        made += [TableBlock(_caption(found), COLUMNS, rows), Text(_reading(found))]
        if found.by_value:
            values = [_row(g) for g in found.by_value]
            caption = f"{plain(found.name, 60)}, by its value"
            made.append(TableBlock(caption, ("Value", *COLUMNS[1:]), values, folded="Inversion, by the true value"))
    return made


def _caption(found: AttributeResult) -> str:
    return f"{plain(found.name, 60)}: who knows everything else about somebody and asks the model with every value"


def _row(guesses: AttributeGuesses) -> Sequence[str]:
    e = guesses.advantage
    limits = "" if e.low is None or e.high is None else f" ({percent(e.low)} to {percent(e.high)})"
    shown = limits.strip(" ()") or "not known" if e.value is None else f"{percent(e.value)}{limits}"
    return plain(guesses.title, 60), _share(guesses.inside), _share(guesses.outside), shown


def _share(value: float | None) -> str:
    return "suppressed" if value is None else percent(value)


def _reading(found: AttributeResult) -> str:
    said = (
        f"Saying the most frequent of its {found.values} values is right for {_share(found.prior_guess)}. The feature "
        f"alone moves an answer by {number(found.influence)} {plain(found.influence_in, 30)} on average."
    )
    if found.theorem is not None:
        said += f" Normal errors of these sizes would give inversion a difference of {percent(found.theorem)}."
    return said
