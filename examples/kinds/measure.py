"""One kind through the gate, as its owner would put it there; everything that happens is a line of the table."""

import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from kinds.catalogue import Kind
from kinds.referee import disagreement
from privgate import Budget, Fleet, Policy, PrivgateError, Subject, evaluate, log_model, registry


def measured(kind: Kind, *, n: int, ledger: Path | None, refereed: bool) -> dict[str, Any]:
    """Return what became of one kind: one JSON row."""
    row: dict[str, Any] = {"row": kind.row, "name": kind.name, "n": n, "policy": kind.policy, "expects": kind.expects}
    start = time.monotonic()
    try:
        row |= _checked(kind, n, ledger, refereed=refereed)
    except PrivgateError as exc:
        row |= {"verdict": "refused", "said": str(exc)}
    except Exception as exc:  # noqa: BLE001  a traceback is what the table must show
        row |= {"verdict": "traceback", "said": f"{type(exc).__name__}: {exc}"}
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    row["seconds"] = round(time.monotonic() - start, 1)
    row["cpu"] = round(sum(u.ru_utime + u.ru_stime for u in used), 1)
    return row


def _checked(kind: Kind, n: int, ledger: Path | None, *, refereed: bool) -> dict[str, Any]:
    recipe, data = kind.make(n)
    with tempfile.TemporaryDirectory() as folder:
        uri = registry.local_registry(Path(folder))
        log_model(recipe, data, registered_model_name="kind", tracking_uri=uri, store=Path(folder, "data"))
        subject = Subject.load("models:/kind/1", tracking_uri=uri)
        policy = Policy.load(kind.policy)
        with Fleet(jobs=2, ledger=ledger or Path(folder, "ledger"), time_limit=120) as fleet:
            verdict = evaluate(policy, subject, fleet=fleet, limits=Budget())
            calls = fleet.calls
        found: dict[str, Any] = {
            "verdict": verdict.outcome.value,
            "trainings": calls,
            "people": len(subject.data.units),
        }
        worst = max(verdict.findings, key=lambda f: f.outcome.rank)
        found["said"] = worst.message
        influence = verdict.evidence.influence
        if influence is not None:
            found["engines"] = {s.engine: s.answered for s in influence.engines}
            found["certificates"] = {c.name: c.units for c in influence.certificates if c.units}
        # a rule about a share of people says nothing about any one of them
        ruled = [f for f in verdict.findings if f.metric in ("pdtp", "dtp") and f.mode == "enforce"]
        limits = [f.limit for f in ruled if "aggregate=share_above" not in str(f.request)]
        decided = verdict.outcome.value in ("passed", "warned", "failed") and limits and "pdtp_low" in verdict.records
        if refereed and decided and _fixed(verdict):
            found["contradicted"] = disagreement(
                Subject.local(recipe, data), verdict.records, approved=verdict.outcome.releases, limit=min(limits)
            )
    return found


def _fixed(verdict: Any) -> bool:
    """Whether training does not depend on its seed: a mean over seeds is no claim about one of them."""
    seeds = verdict.evidence.run.seeds
    return seeds is None or not seeds.dependent
