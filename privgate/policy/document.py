"""What a policy file may say; the JSON Schema for editors is made from these models."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, PositiveInt, StringConstraints, model_validator

from privgate.policy import people
from privgate.policy.part import Audit, Part
from privgate.policy.rules import AnyRule
from privgate.policy.rules.base import Rule, wrong
from privgate.run.needs import Need

Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
NAME = r"^[a-z0-9][a-z0-9._-]*$"
DIGEST = r"^sha256:[0-9a-f]{64}$"
Name = Annotated[str, StringConstraints(pattern=NAME)]
Digest = Annotated[str, StringConstraints(pattern=DIGEST)]

#: longest life of a waiver, and how long before its end the reports start to warn
WAIVER_DAYS = 90
WARNING_DAYS = 14


class AppliesTo(Part):
    """For which registered models and aliases this policy is meant; used for another, it is refused before training."""

    models: tuple[Text, ...] = Field(default=("*",), min_length=1, description="Names; * and ? stand for any text.")
    aliases: tuple[Text, ...] = Field(default=("*",), min_length=1, description="Aliases that a promotion may set.")


class Data(Part):
    """What must hold of the training data before anything is retrained."""

    suite: tuple[Text, ...] = Field(default=(), description="Great Expectations suites (JSON), relative to this file.")
    min_rows: PositiveInt = Field(default=1, description="Least number of training records.")


class Waiver(Part):
    """A dated exception for one rule and one model version, up to a ceiling."""

    rule: Name = Field(description="Id of the rule.")
    model: Text = Field(description="Registered name of the model.")
    version: Digest = Field(description="Digest of the version's model files, as reports print it.")
    ceiling: float = Field(description="The value up to which the rule is waived.")
    reason: Text = Field(description="Why the release may go ahead all the same.")
    requester: Text = Field(description="Who asks for it.")
    approver: Text = Field(description="Somebody else than the requester.")
    granted: date = Field(description="First day.")
    expires: date = Field(description=f"Last day, at most {WAIVER_DAYS} days after the first.")

    @model_validator(mode="after")
    def _two_people_and_a_date(self) -> Self:
        for key in ("requester", "approver"):
            if why := people.unfit(getattr(self, key)):
                raise wrong(key, f"{key} {why}; write the person's name in plain letters")
        if people.same(self.requester, self.approver):
            raise wrong("approver", "requester and approver are the same person; somebody else must approve")
        if self.expires < self.granted:
            raise wrong("expires", f"expires on {self.expires}, before it is granted on {self.granted}")
        if (self.expires - self.granted).days > WAIVER_DAYS:
            days = (self.expires - self.granted).days
            raise wrong("expires", f"a waiver lives at most {WAIVER_DAYS} days, not {days}; renew it instead")
        return self

    @property
    def subject(self) -> tuple[str, str]:
        """What it excuses: one rule, and one model version by the digest of its files, whatever its name."""
        return self.rule, self.version

    @property
    def key(self) -> str:
        """Name of the waiver in reports and statements."""
        return f"{self.rule}@{self.model}@{self.version[7:19]}"


class Document(Part):
    """A policy file."""

    schema_: Literal["privgate/policy/v1"] = Field(alias="schema", description="Version of this format.")
    name: Name = Field(description="Name of the policy in reports and statements.")
    version: Text = Field(description="Changed whenever a limit changes; text, so write it in quotes.")
    description: str = ""
    approves: str = Field(default="", description="For which models this policy can approve, and for which never.")
    extends: Text | None = Field(
        default=None, description="A shipped policy, or a file beside this one; may only be tightened."
    )
    applies_to: AppliesTo = AppliesTo()
    audit: Audit = Audit()
    data: Data = Data()
    valid_days: Annotated[int, Field(ge=1, le=3650)] = Field(default=365, description="How long an approval lasts.")
    file: Literal["downloadable", "not downloadable"] = Field(
        default="downloadable",
        description="not downloadable: nobody who may ask the model can get its file, which the policy's owner answers "
        "for. artifact_records then warns where it would block.",
    )
    rules: Annotated[tuple[AnyRule, ...], Field(min_length=1, description="At least one rule, and one that can block.")]
    never_waivable: tuple[Name, ...] = Field(default=(), description="Ids of rules that no waiver may touch.")
    waivers: tuple[Waiver, ...] = ()

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        names = [r.name for r in self.rules]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise wrong("rules", f"two rules are called {twice[0]!r}; give each an 'id' of its own")
        if not any(r.binding for r in self.rules):
            raise wrong("rules", "no rule can block: at least one needs mode 'enforce' and 'required: true'")
        return self

    def withheld(self, rule: Rule) -> str:
        """Return why a rule warns at most here: it is about a file that nobody can get; empty if it can block."""
        stated = self.file == "not downloadable" and Need.FILE in rule.about.needs
        return "the policy states that the file is not downloadable" if stated else ""

    def powerless(self, facts: Mapping[str, Any]) -> str:
        """Return why nothing that this policy enforces can fail, so that it approves nothing; empty if something can.

        Parameters
        ----------
        facts : mapping
            What is known of subject and suites, see ``Rule.vacuous``.
        """
        why = {r.name: r.vacuous(facts) or self.withheld(r) for r in self.rules if r.binding}
        if not all(why.values()):
            return ""
        told = "; ".join(f"rule {name!r} cannot fail: {text}" for name, text in why.items())
        return f"policy {self.name!r} approves nothing, because nothing it enforces can fail ({told})"


def plain(model: BaseModel) -> dict[str, Any]:
    """Return JSON values of a model, under the names of the file."""
    return model.model_dump(mode="json", by_alias=True)
