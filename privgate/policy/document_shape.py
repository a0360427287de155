"""What a policy file may say: its models, and their errors in words."""

import json
import unicodedata
from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, PositiveInt, StringConstraints, ValidationError, model_validator

from privgate.documents.strict_json import Place
from privgate.policy import rules
from privgate.policy.problems import PolicyFileError, Problem, Tree, nearest
from privgate.policy.rules import AnyRule
from privgate.policy.rules.rule_base import Audit, Part, Rule, wrong
from privgate.run.needs import Need

Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
NAME = r"^[a-z0-9][a-z0-9._-]*$"
DIGEST = r"^sha256:[0-9a-f]{64}$"
Name = Annotated[str, StringConstraints(pattern=NAME)]
Digest = Annotated[str, StringConstraints(pattern=DIGEST)]

#: longest life of a waiver, and how long before its end the reports start to warn
WAIVER_DAYS = 90
WARNING_DAYS = 14  # before an approval ends


#: what is stated of a file that nobody who may ask the model can get
WITHHELD: Literal["not downloadable"] = "not downloadable"


class Data(Part):
    """What must hold of the training data before anything is retrained."""

    suite: tuple[Text, ...] = Field(default=(), description="Great Expectations suites (JSON), relative to this file.")
    min_rows: PositiveInt = Field(default=1, description="Least number of training records.")
    people_declared: bool = Field(
        default=False, description="The data must say whose each record is: by groups=, or by one_record_each=True."
    )


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
            if unseen := next((c for c in getattr(self, key) if not c.isprintable()), ""):
                text = f"{key} holds U+{ord(unseen):04X}, which nobody sees; write the person's name in plain letters"
                raise wrong(key, text)
        if _fold_name(self.requester) == _fold_name(self.approver):
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


def _fold_name(name: str) -> str:
    """Return a person's name without case, spaces and compatibility forms: what is equal then is one person."""
    return "".join(unicodedata.normalize("NFKC", name).casefold().split())


class Document(Part):
    """A policy file."""

    schema_: Literal["privgate/policy/v1"] = Field(alias="schema", description="Version of this format.")
    name: Name = Field(description="Name of the policy in reports and statements.")
    version: Text = Field(description="Changed whenever a limit changes; text, so write it in quotes.")
    description: str = ""
    approves: str = Field(default="", description="For which models this policy can approve, and for which never.")
    extends: Text | None = Field(default=None, description="Shipped policy, or file beside this one; only tightened.")
    audit: Audit = Audit()
    data: Data = Data()
    valid_days: Annotated[int, Field(ge=1, le=3650)] = Field(default=365, description="How long an approval lasts.")
    file: Literal["downloadable", "not downloadable"] = Field(
        default="downloadable",
        description="not downloadable: nobody who may ask the model can get its file, which the policy's owner answers "
        "for. file_records then warns where it would refuse.",
    )
    rules: Annotated[tuple[AnyRule, ...], Field(min_length=1, description="At least one rule that can refuse.")]
    never_waivable: tuple[Name, ...] = Field(default=(), description="Ids of rules that no waiver may touch.")
    waivers: tuple[Waiver, ...] = ()

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        names = [r.name for r in self.rules]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise wrong("rules", f"two rules are called {twice[0]!r}; give each an 'id' of its own")
        if not any(r.binding for r in self.rules):
            raise wrong("rules", "no rule can refuse: at least one needs mode 'enforce' and 'required: true'")
        if not any(r.binding and not r.when for r in self.rules):
            raise wrong("rules", "every rule has a 'when': at least one that can refuse must be asked of every model")
        if soft := [r.name for r in self.rules if r.either and not r.binding]:
            text = f"rule {soft[0]!r} answers for others by 'either': it needs mode 'enforce' and 'required: true'"
            raise wrong("rules", text)
        return self

    @property
    def groups(self) -> dict[str, str]:
        """Rule -> the question that it and others ask, of which one that is met is enough."""
        return {r.name: r.either for r in self.rules if r.either}

    def withheld(self, rule: Rule, stated: str = "") -> str:
        """Return why a rule warns at most here: it is about a file that cannot be downloaded; empty if it can block."""
        if Need.LOOKED not in rule.about.needs or WITHHELD not in (self.file, stated):
            return ""
        return f"the {'policy' if self.file == WITHHELD else 'operator'} states that the file is not downloadable"

    def powerless(self, facts: Mapping[str, Any]) -> str:
        """Return why nothing that this policy enforces can fail, so that it approves nothing; empty if it can."""
        why = {r.name: r.vacuous(facts) or self.withheld(r) for r in self.rules if r.binding}
        if not all(why.values()):
            return ""
        reasons = "; ".join(f"rule {name!r} cannot refuse: {text}" for name, text in why.items())
        return f"policy {self.name!r} approves nothing, because nothing it enforces can refuse ({reasons})"


# The shape of a policy file: pydantic's errors, translated into place, key, what was expected and the nearest name.

_OBSERVE = "observing is the operator's setting, `privgate check --observe`"
#: pydantic's kind of error, or the pattern that a text does not match -> what was expected, where pydantic says less
_WORDS = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "keys with values"),
    "string_type": "text; put it in quotes",
    "float_type": "a number, without quotes",
    "int_type": "a whole number, without quotes",
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    NAME: "lower-case letters, digits, '.', '_' and '-', beginning with a letter or digit",
    DIGEST: "sha256: and 64 hexadecimal digits, as the report prints the model's digest",
}
#: metrics and keys of earlier versions -> what to use instead
GONE = {
    "applies_to": "rows of a guard's table: they say by which policy a model is released",
    "not_applicable": "no such key: protected: {except: [...]} of the guard's file names such models",
    "accept_declared_claims": "no such key: a guarantee counts where a rerun by Opacus or diffprivlib shows it",
    "collusion": "attack_accuracy and pdtp, which judge the model itself",
    "table": "pdtp, or an expectation in the suite of data",
}

D = TypeVar("D", bound=Document)


def validated(tree: Tree, kind: type[D]) -> D:
    """Return the document, or raise with every mistake that its shape has."""
    try:
        return kind.model_validate_json(json.dumps(tree.value))
    except ValidationError as exc:
        errors = exc.errors(include_url=False)
        # a list whose items are wrong is also reported as too short; the item is the news
        errors = [e for e in errors if not (e["type"] == "too_short" and e["input"])]
        raise PolicyFileError(*sorted({_problem(tree, error) for error in errors})) from exc


def _problem(tree: Tree, error: Any) -> Problem:
    """Translate one error of pydantic into place, key, expectation and nearest name."""
    place, kind, ctx, given = tuple(error["loc"]), error["type"], error.get("ctx", {}), error["input"]
    if len(place) > 2 and place[0] == "rules" and place[2] in rules.ALL:
        place = (*place[:2], *place[3:])  # the union's tag, which pydantic puts behind the rule's position
    what = expected = near = ""
    choices: list[str] = []  # where one of several words was expected
    if kind == "extra_forbidden":
        choices, given = list(_fields_beside(place, tree)), str(place[-1])
        what = f"unknown key {given!r}"
        expected = f"no such key; {_OBSERVE}" if given == "observe" else GONE.get(given, "")
    elif kind == "missing":
        description = _fields_beside(place, tree)[str(place[-1])].description or "a value"
        what, expected = "missing", _inside(description).rstrip(".")
    elif kind == "union_tag_not_found":
        place, what, expected = (*place, "metric"), "missing", f"one of {', '.join(rules.ALL)}"
    elif kind == "union_tag_invalid":
        place, given = (*place, "metric"), ctx["tag"]
        if given in GONE:
            what, expected = f"{given!r} went with 0.1.0, the last version that knew it", GONE[given]
        else:
            what, choices = f"unknown metric {given!r} (rules of plug-ins were known until 0.1.0)", list(rules.ALL)
    elif kind == "literal_error":
        words = [c.strip("'") for c in str(ctx["expected"]).replace(" or ", ", ").split(", ")]
        what, near = f"{given!r} is not known", nearest(given, words) if len(words) > 1 else ""
        expected = f"one of {', '.join(words)}" if len(words) > 1 else words[0]
        expected = GONE.get(str(place[-1]), expected) + (f"; {_OBSERVE}" if given == "observe" else "")
    elif kind == "privgate":
        place = (*place, ctx["key"]) if (*place, ctx["key"]) in tree.marks else place
        what = ctx["text"]
    else:
        shown, expected = json.dumps(given, ensure_ascii=False, default=str), _WORDS.get(ctx.get("pattern", kind), "")
        why = "" if expected else f": {_inside(str(error['msg']).removeprefix('Value error, '))}"
        what = f"{shown if len(shown) <= 40 else shown[:37] + '...'} cannot be used{why}"
    if choices:
        near = "" if expected else nearest(given, choices)
        expected = expected or ("" if near else f"one of {', '.join(choices)}")
    return tree.problem(place, what, expected, near)


def _fields_beside(place: Place, tree: Tree) -> dict[str, Any]:
    """Return every key that may stand where ``place`` stands, with its field."""
    model: Any = Document
    if place[:1] == ("rules",) and len(place) == 3:
        model = rules.ALL[tree.value["rules"][place[1]]["metric"]]
    else:
        for step in (s for s in place[:-1] if isinstance(s, str)):
            inner = model.model_fields[step].annotation
            model = getattr(inner, "__args__", (inner,))[0]  # that of ``tuple[Model, ...]``
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _inside(text: str) -> str:
    return text[:1].lower() + text[1:]
