"""The rules a policy may use: one file each, one line each here; the metric's name is the file's name."""

from typing import Annotated

from pydantic import Field

from privgate.rules.base import Rule
from privgate.rules.dtp import Dtp
from privgate.rules.pdtp import Pdtp

AnyRule = Annotated[Dtp | Pdtp, Field(discriminator="metric")]

#: metric -> rule
ALL: dict[str, type[Rule]] = {
    "dtp": Dtp,
    "pdtp": Pdtp,
}

__all__ = ["ALL", "AnyRule", "Rule"]
