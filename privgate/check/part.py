"""The run's own part of the evidence, and who was judged, by what: all that a report says beside the questions."""

import os
import platform
import sys
from collections.abc import Mapping
from typing import Any

from privgate.evidence import RunPart, RunTrace, SeedControl, TrainingPlan
from privgate.influence import modes
from privgate.policy import Policy
from privgate.run.run import Run
from privgate.subject.subject import Subject
from privgate.version import __version__


def part(run: Run, planned: TrainingPlan | None) -> RunPart:
    """Return what evidence says of the run itself."""
    return RunPart(
        mode=modes.told(run),
        cannot_conclude=run.cannot_conclude,
        plan=planned,
        single_median=run.single_median,
        seeds=_seeds(run),
        trace=trace(run),
        isolation=run.fleet.isolation_of(run.subject),
        remembered=run.fleet.freshness.told(signable=run.fleet.signable),
        nonce=run.nonce,
    )


def _seeds(run: Run) -> SeedControl | None:
    """Return what the controls say of seeds, and how many were used in the end."""
    found = run.seed_control
    return found.model_copy(update={"paired": len(run.seeds)}) if found is not None and found.dependent else found


def trace(run: Run) -> RunTrace:
    """Return what a reader needs to run this again."""
    import numpy as np
    import sklearn

    return RunTrace(
        versions={
            "privgate": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
        },
        system=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        command=" ".join(["privgate", *sys.argv[1:]]) if "privgate" in sys.argv[0] else "",
        seeds=run.seeds,
        training_calls=run.fleet.calls,
        digests=dict(run.subject.digests),
    )


def identity(subject: Subject) -> Mapping[str, Any]:
    """Return the subject's words and digests for the report."""
    data = subject.data
    return {
        "name": subject.name,
        "version": subject.version,
        "uri": subject.uri,
        "digests": dict(subject.digests),
        "n_records": data.n,
        "n_units": len(data.units),
        "n_classes": len(subject.classes) if subject.task == "classification" else 0,
        **({} if subject.task == "classification" else {"task": subject.task}),
        "n_candidates": 0 if data.candidates is None else len(data.candidates[1]),
        "release": subject.release.payload(),
        "domain": None if data.effective_domain is None else data.effective_domain.payload(),
        "recipe": dict(subject.recipe.payload),
        "detail": {k: v for k, v in subject.detail.items() if k != "preconditions"},
    }


def named(policy: Policy) -> dict[str, Any]:
    """Return the policy's name, digest and resolved text for the report."""
    return {
        "name": policy.name,
        "version": policy.version,
        "digest": policy.digest,
        "path": str(policy.path.name),
        "source": policy.resolved,
    }
