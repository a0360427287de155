"""What a subject of the catalogue is, how one is put to the product, and how the answer counts."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privgate import Policy, evaluate
from privgate.errors import PrivgateError
from privgate.policy.explain import explain
from privgate.run.run import Budget
from privgate.training.fleet import Fleet

HEAD = 'schema: privgate/policy/v1\nname: {name}\nversion: "1"\n'


@dataclass(frozen=True, eq=False)
class Trial:
    """One subject, put together.

    Parameters
    ----------
    policy : str or Path
        Shipped name, or file; loaded when the trial is run, because refusing it is an answer too.
    subject : callable
        Makes the subject: to refuse it is an answer too.
    truth : callable
        Returns the true value of what the policy limits, by refits, reasoning or simulation; larger is worse.
    limit : float
        The policy's limit: a subject whose truth is above it must not be approved.
    limits : Budget
        What the run may cost.
    unless : str
        Words that take the falsehood out of an approval where lint or the verdict says them.
    """

    policy: str | Path
    subject: Callable[[], Any]
    truth: Callable[[], float]
    limit: float
    limits: Budget = field(default_factory=Budget)
    unless: str = ""


@dataclass(frozen=True, eq=False)
class Case:
    """One line of the catalogue.

    Parameters
    ----------
    name : str
    about : str
        The kind of fault it plants, or "honest".
    approve : bool or None
        Whether an approval would be right; None where that follows from what the product itself trains or serves: the
        truth, measured anew in every run, decides.
    because : str
        Why the true answer is what it is.
    make : callable
        ``make(folder) -> Trial``.
    needs : tuple of str
        Libraries without which the subject does not exist.
    """

    name: str
    about: str
    approve: bool | None
    because: str
    make: Callable[[Path], Trial]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What came of a subject.

    Parameters
    ----------
    outcome : str
        "passed", "warned", "inconclusive", "failed"; "refused" where policy or subject was not accepted at all, "told"
        where the approval came with the words that it needed.
    why : str
        The sentences behind it.
    seconds : float
    truth, limit : float
    right : bool
        Whether an approval would be right.
    """

    outcome: str
    why: str
    seconds: float
    truth: float
    limit: float
    right: bool

    @property
    def approved(self) -> bool:
        """Whether the product lets the model go."""
        return self.outcome in {"passed", "warned"}

    @property
    def false_approval(self) -> bool:
        """The one thing that may never happen."""
        return self.approved and not self.right

    @property
    def needless_refusal(self) -> bool:
        """An honest subject that is not let go."""
        return self.right and not self.approved


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
    started = time.perf_counter()
    try:
        rules = Policy.load(trial.policy)
        verdict = evaluate(rules, trial.subject(), fleet=fleet, limits=trial.limits)
        outcome = str(verdict.outcome)
        if trial.unless and verdict.approved and _told(trial.unless, rules, verdict):
            outcome = "told"
        said = [f.message for f in verdict.findings if _matters(f, outcome)]
    except PrivgateError as exc:
        outcome, said = "refused", [str(exc)]
    seconds = time.perf_counter() - started
    return Answer(outcome, " | ".join(said), seconds, truth, trial.limit, right)


def _told(words: str, rules: Policy, verdict: Any) -> bool:
    """Whether the policy's explanation or the verdict's own sentences say the words."""
    said = list(explain(rules))
    said += [f"{f.message} {f.meaning} {f.advice}" for f in verdict.findings]
    return any(words in text for text in said)


def _matters(finding: Any, outcome: str) -> bool:
    """Whether a finding explains the outcome: the rules of an approval, and what stopped any other."""
    own = not finding.rule.startswith("precondition:")
    return own if outcome in {"passed", "warned"} else str(finding.outcome) == outcome


def table(rows: Sequence[tuple[Case, Answer]]) -> str:
    """Return the printed table: subject, truth, verdict, seconds."""
    lines = [f"{'subject':44} {'truth':>10} {'allowed':>8} {'may pass':>8} {'verdict':>13} {'seconds':>7}"]
    for one, got in rows:
        mark = "  FALSE APPROVAL" if got.false_approval else "  needless refusal" if got.needless_refusal else ""
        may = "yes" if got.right else "no"
        lines.append(
            f"{one.name:44} {got.truth:10.4g} {got.limit:8.4g} {may:>8} {got.outcome:>13} {got.seconds:7.1f}{mark}"
        )
    must_not = sum(not a.right for _, a in rows)
    lines.append(
        f"{len(rows)} subjects, {must_not} must not be approved: false approvals "
        f"{sum(a.false_approval for _, a in rows)}, needless refusals "
        f"{sum(a.needless_refusal for _, a in rows)} of {len(rows) - must_not}"
    )
    return "\n".join(lines)
