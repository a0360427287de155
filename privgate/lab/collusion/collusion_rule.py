"""The rule ``collusion`` asks whether training code was seen to hide messages about its records in the model.

Yeom et al. (2020, section 3.4): training code that colludes with somebody who asks the model can add, for every record,
a question and an answer made from it with a secret key (Algorithm 1). Whoever has the key reads off the model who was
in the data; to everybody else it is as good as an honest one, and attacks on its losses find nothing.

What is looked for (``signs``; all if none are named):

=============  =========================================================================================================
records        the learner is given rows that are no records, or records and near-records with other labels
reads          files, folders, network, environment, other processes: anything but its arguments
held           arrays in globals, closures, defaults, attributes and constants; arrays left for the next training
randomness     a hash or a seeded generator for every record; randomness beyond the seed
watched        another model where training is watched; looking at the watch or other frames; code made while it runs
store          a trained object that keeps more the more records there are, outside of any library's learner, or much
off_domain     a rule of one column is learned on the records and not at random points, where honest learners follow it
sources        code that no recorded source file holds, or that changed since a version was approved
=============  =========================================================================================================

Training runs three times under watch, in a process of its own, and once more on relabelled records. ``max`` is the
number of signs allowed. A sign that could not be looked for counts as possible: the rule is inconclusive then, never
passed. With several rules of different ``signs`` and ``mode`` a policy says which block and which warn.

**What stays undetectable.** No test that only asks questions finds every secret key (theorem 4): a model may answer
everywhere like an honest one but at a few questions that nobody without the key would ask. Nor does watching see a
message in a few numbers or in a network's weights made by arithmetic alone, records dropped or weighted by key, labels
of a few records changed, rows in a space of the code's own making that are no more than the records, what the clock,
the host and names of files tell, code that knows this watch or colludes only on a day or a machine that is not the
gate's, or a library that is itself subverted. Read the sources, pin them, and let only such training code approve that
somebody has read.

Request: ``collusion(signs=(name, …))``; ``signs`` only where the policy names some. Signs.

    - metric: collusion
      max: 0
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, NonNegativeInt

from privgate.evidence import SIGNS, Measurement, Sign
from privgate.policy.rules import rule_reach
from privgate.policy.rules.metric import ANY_ANSWERS, Metric
from privgate.policy.rules.rule_base import Rule
from privgate.run.needs import Need
from privgate.verdict import Outcome

METRIC = Metric(
    "collusion",
    "Signs that training hides messages in the model",
    reaches=f"0 (nothing was seen, which is no proof) to {len(SIGNS)} (every detector saw something)",
    unit="signs",
    worst=float(len(SIGNS)),
    needs=frozenset({Need.WATCHED}),
    answers=ANY_ANSWERS,
    shows_leaks_only=True,
)


class Collusion(Rule):
    """Training code may show no sign of hiding messages about its records in the model."""

    about = METRIC
    metric: Literal["collusion"] = "collusion"
    max: NonNegativeInt = Field(default=0, description="Signs that are allowed.")
    signs: tuple[Sign, ...] | None = Field(default=None, description="What is looked for; everything if absent.")

    def vacuous(self, facts: Mapping[str, Any] = rule_reach.NOTHING) -> str:
        """Return why no measurement could break this rule."""
        del facts
        asked = len(set(self.signs or SIGNS))
        return f"{asked} signs are looked for, and {self.max} of them may be there" if self.max >= asked else ""

    def meaning(self, measurement: Measurement) -> str:
        """Return what was looked for and what it is worth."""
        del measurement
        return (
            "training was run under watch; whoever wrote it could tell a partner with a secret key who was in the "
            "data, and what was seen of that is counted; nothing seen is no proof that there is none"
        )

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        """Say what an honest recipe does."""
        if measurement.problem or outcome is Outcome.INCONCLUSIVE:
            return (
                "fit a known library's learner to the records themselves, or have the sources read and a waiver given"
            )
        return (
            "train on exactly the records and labels that are handed over, with the seed that is handed over, and read "
            "nothing else; pass data that training needs as parameters or as training data"
        )
