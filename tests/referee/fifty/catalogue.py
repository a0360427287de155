"""What a subject of the catalogue is, how one is put to the product, and how the answer counts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privgate import Policy, evaluate
from privgate.errors import PrivgateError
from privgate.policy.resolved_policy import explain
from privgate.run.run import Budget
from privgate.training.fleet import Fleet

HEAD = 'schema: privgate/policy/v1\nname: {name}\nversion: "1"\n'


@dataclass(frozen=True, eq=False)
class Trial:
    """One subject, put together; policy and subject are made when it is run: to refuse them is an answer too."""

    policy: str | Path
    subject: Callable[[], Any]
    #: the true value of what the policy limits, by refits, reasoning or simulation; larger is worse
    truth: Callable[[], float]
    #: a subject whose truth is above it must not be approved
    limit: float
    limits: Budget = field(default_factory=Budget)
    #: words that take the falsehood out of an approval where lint or the verdict says them
    unless: str = ""


@dataclass(frozen=True, eq=False)
class Case:
    """One line of the catalogue: the kind of fault that it plants, or "honest", and why the true answer is what it is.

    ``approve`` is None where the truth follows from what the product itself trains or serves.
    """

    name: str
    about: str
    approve: bool | None
    because: str
    make: Callable[[Path], Trial]
    #: libraries without which the subject does not exist
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What came of a subject: an outcome; "refused" of policy or subject; "told" with the words that it needed."""

    outcome: str
    why: str
    truth: float
    limit: float
    #: whether an approval would be right
    right: bool

    @property
    def false_approval(self) -> bool:
        """The one thing that may never happen."""
        return self.outcome in {"passed", "warned"} and not self.right


CASES: dict[str, Case] = {}


def case(
    about: str, *, approve: bool | None, because: str, needs: tuple[str, ...] = ()
) -> Callable[[Callable[[Path], Trial]], Callable[[Path], Trial]]:
    """Enter a function in the catalogue under its own name."""

    def entered(make: Callable[[Path], Trial]) -> Callable[[Path], Trial]:
        name = make.__name__
        if name in CASES:
            raise ValueError(f"two subjects are called {name}")
        CASES[name] = Case(name, about, approve, because, make, needs)
        return make

    return entered


def variants(function: Callable[..., Trial], about: str, *, approve: bool | None, because: str, **options: Any) -> None:
    """Enter a function several times: ``suffix = keyword arguments``."""
    needs = options.pop("needs", ())
    for suffix, given in options.items():
        name = f"{function.__name__}_{suffix}"

        def make(folder: Path, given: Any = given) -> Trial:
            return function(folder, **given)

        make.__name__ = name
        case(about, approve=approve, because=because, needs=needs)(make)


def policy(folder: Path, *rules: str, name: str = "own", more: str = "") -> Path:
    """Write a policy of our own and return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    text = HEAD.format(name=name) + more + "rules:\n" + "".join(f"  - {{{r}}}\n" for r in rules)
    path.write_text(text, encoding="utf-8")
    return path


def put(one: Case, folder: Path, fleet: Fleet) -> Answer:
    """Ask the product about a subject, and the slow way for the truth.

    Anything but a verdict or an error of the product's own kind is a bug and is raised.
    """
    trial = one.make(folder)
    truth = float(trial.truth())
    if truth != truth:
        raise ValueError(f"{one.name}: the truth is not a number")
    right = truth <= trial.limit
    if one.approve is not None and right != one.approve:
        raise AssertionError(f"{one.name}: catalogued otherwise, but the truth is {truth:g}, allowed {trial.limit:g}")
    try:
        rules = Policy.load(trial.policy)
        verdict = evaluate(rules, trial.subject(), fleet=fleet, limits=trial.limits)
        outcome = str(verdict.outcome)
        if trial.unless and verdict.approved and _told(trial.unless, rules, verdict):
            outcome = "told"
        said = [f.message for f in verdict.findings if _matters(f, outcome)]
    except PrivgateError as exc:
        outcome, said = "refused", [str(exc)]
    return Answer(outcome, " | ".join(said), truth, trial.limit, right)


def _told(words: str, rules: Policy, verdict: Any) -> bool:
    """Whether the policy's explanation or the verdict's own sentences say the words."""
    said = list(explain(rules))
    said += [f"{f.message} {f.meaning} {f.advice}" for f in verdict.findings]
    return any(words in text for text in said)


def _matters(finding: Any, outcome: str) -> bool:
    """Whether a finding explains the outcome: the rules of an approval, and what stopped any other."""
    own = not finding.rule.startswith("precondition:")
    return own if outcome in {"passed", "warned"} else str(finding.outcome) == outcome
