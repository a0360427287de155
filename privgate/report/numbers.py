"""What one person moves a regressor's answers by, for the section on the risk of each person."""

from privgate.evidence import SensitivityFigures
from privgate.report.blocks import Block, Facts, Text
from privgate.report.text import number, percent, plain

NOT_DTP = (
    "Sensitivity is not DTP: it says how far an answer moves when one person is left out, as a share of what the model "
    "usually errs by. It bounds no probability and stops no attack by itself."
)


def blocks(figures: SensitivityFigures) -> list[Block]:
    """Return residual deviations and sensitivity, with what they do not say."""
    inside, outside = figures.residual_inside, figures.residual_outside
    everywhere = (
        f"no limit known: {plain(figures.why_no_domain, 200)}"
        if figures.over_domain is None
        else f"at most {number(figures.over_domain)} residual deviations, by theorem"
    )
    apart = number(outside / inside) if inside else "unlimited"
    most = number(figures.most)
    own = f"half are below {number(figures.median)}, 99 % below {number(figures.p99)}, the worst is {most}"
    items = [
        ("Residual deviation on training records", number(inside)),
        ("Residual deviation on records left out, the unit of sensitivity", number(outside)),
        ("Errs more on records left out than on training records by a factor of", apart),
        ("Sensitivity, asked about the person's own record", own),
        ("Sensitivity, over every question of the declared domain", everywhere),
    ]
    if figures.noise:
        items.append(("Released", plain(figures.noise, 120)))
    if figures.noise_advantage is not None:
        items.append(
            ("Advantage of anybody on one noisy answer about the person, at most", percent(figures.noise_advantage))
        )
    return [Text(NOT_DTP, "note"), Facts(items, wide=True)]
