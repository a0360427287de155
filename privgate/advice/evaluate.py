"""A check whose refusal names the way out: the gate's route, then what would pass."""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from pathlib import Path

from privgate.advice.steps import steps
from privgate.check import gate
from privgate.errors import UsageError
from privgate.policy import Policy
from privgate.run.run import Budget
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet
from privgate.verdict import Verdict


def evaluate(
    policy: Policy | str | PathLike[str],
    subject: Subject,
    *,
    fleet: Fleet | None = None,
    limits: Budget | None = None,
    observe: bool = False,
    nonce: str = "",
    announce: Callable[[str], None] | None = None,
) -> Verdict:
    """Judge ``subject`` by every rule of ``policy``, and name what would make it pass where it does not.

    Parameters
    ----------
    policy : Policy, str or path
        A policy, the name of a shipped one, or its file.
    subject : Subject
        ``Subject.load("models:/name/version")`` or ``Subject.local(recipe, data)``.
    fleet : Fleet, optional
        Where retraining runs and is remembered; worker processes on this machine if absent.
    limits : Budget, optional
        What the run may cost.
    observe : bool
        The operator's setting: the verdict is recorded, nothing is approved by it.
    nonce : str
        Whoever asked for this check; its signer refuses the report of any other.
    announce : callable, optional
        Is told in sentences what can never be concluded, and what the work will cost, before it starts.

    Returns
    -------
    Verdict
        A failed policy is a verdict, never an exception.
    """
    if not isinstance(subject, Subject):
        raise UsageError(
            f"evaluate judges a Subject, not a {type(subject).__name__}; "
            "pass Subject.local(recipe, data) or Subject.load('models:/name/version')"
        )
    policy = (
        policy if isinstance(policy, Policy) else Policy.load(Path(policy) if isinstance(policy, PathLike) else policy)
    )
    with contextlib.ExitStack() as own:
        fleet, limits = fleet or own.enter_context(Fleet()), limits or Budget()
        verdict = gate.evaluate(
            policy, subject, fleet=fleet, limits=limits, observe=observe, nonce=nonce, announce=announce
        )
        found, path = steps(policy, subject, verdict, fleet=fleet, limits=limits)
    if not found:
        return verdict
    run = verdict.evidence.run.model_copy(update={"next_steps": found, "removals": path})
    detail = {**verdict.detail, "next_steps": [step.payload() for step in found]}
    return replace(verdict, evidence=replace(verdict.evidence, run=run), detail=detail)
