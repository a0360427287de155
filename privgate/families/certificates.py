"""Certificates: theorems whose hypotheses were checked, each in the room of its family."""

from privgate.families import of_data
from privgate.families.certificate import Certificate
from privgate.families.listed import ListedQuestions

ALL: dict[str, Certificate] = {c.name: c for c in (ListedQuestions(), *of_data.ALL.values())}
