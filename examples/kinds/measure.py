"""One kind through the gate, as its owner would put it there; everything that happens is a line of the table."""

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd

from kinds.catalogue import KINDS, Kind
from kinds.referee import disagreement, unseen_seeds
from kinds.table import DECIDED
from privgate import Budget, Fleet, Policy, PrivgateError, Release, Subject, log_model, registry
from privgate.check.gate import evaluate


def measured(
    kind: Kind,
    *,
    n: int,
    ledger: Path | None,
    refereed: bool,
    home: Path | None = None,
    release: Release | None = None,
) -> dict[str, Any]:
    """Return what became of one kind: one JSON row.

    The decision alone is measured: what would pass instead (``privgate.evaluate``, ``privgate advise``) is searched for
    by whoever is refused.

    Parameters
    ----------
    home : Path, optional
        Folder of an empty registry to copy; making one takes seconds.
    release : Release, optional
        With a floor: the file is then stated to be out of reach.
    """
    row: dict[str, Any] = {"row": kind.row, "name": kind.name, "n": n, "policy": kind.policy, "expects": kind.expects}
    row["pandas"] = pd.__version__.partition(".")[0]
    start = time.monotonic()
    try:
        row |= _checked(kind, n, ledger, refereed=refereed, home=home, release=release)
    except PrivgateError as exc:
        row |= {"verdict": "refused", "said": str(exc)}
    except Exception as exc:  # noqa: BLE001  a traceback is what the table must show
        row |= {"verdict": "traceback", "said": f"{type(exc).__name__}: {exc}"}
    return row | {"seconds": round(time.monotonic() - start, 1)}


def by_name(name: str, n: int, out: Path) -> dict[str, Any]:
    """Return what became of one kind; ``out`` keeps what is trained, for a run that was interrupted."""
    kind = next(k for k in KINDS if k.name == name)
    ledger = out / "ledger" / name
    return measured(kind, n=n, ledger=ledger, refereed=True, home=out / "registry")


def _checked(
    kind: Kind, n: int, ledger: Path | None, *, refereed: bool, home: Path | None, release: Release | None
) -> dict[str, Any]:
    recipe, data = kind.make(n)
    with tempfile.TemporaryDirectory() as folder:
        if home is not None:
            shutil.copy(home / "registry.db", folder)
        uri = registry.local_registry(Path(folder))
        where = {"tracking_uri": uri, "store": Path(folder, "data")}
        log_model(recipe, data, registered_model_name="kind", release=release, **where)
        subject = Subject.load("models:/kind/1", tracking_uri=uri)
        policy = Policy.load(kind.policy)
        with Fleet(jobs=2, ledger=ledger or Path(folder, "ledger"), time_limit=120) as fleet:
            verdict = evaluate(policy, subject, fleet=fleet, limits=Budget(file_withheld=release is not None))
            calls = fleet.calls
        found: dict[str, Any] = {
            "verdict": verdict.outcome.value,
            "trainings": calls,
            "people": len(subject.data.units),
        }
        released = verdict.outcome.releases  # what only warns of the data decided nothing
        ruled = [f for f in verdict.findings if not f.rule.startswith("precondition:") and f.mode == "enforce"]
        found["said"] = max(ruled if released and ruled else verdict.findings, key=lambda f: f.outcome.rank).message
        influence = verdict.evidence.influence
        if influence is not None:
            found["engines"] = {s.engine: s.answered for s in influence.engines}
            found["certificates"] = {c.name: c.units for c in influence.certificates if c.units}
        # a rule about a share of people says nothing about any one of them
        limits = [f.limit for f in ruled if f.metric in {"pdtp", "dtp"} and "share_above" not in str(f.request)]
        decided = (
            verdict.outcome.value in DECIDED and "pdtp_low" in verdict.records and subject.task == "classification"
        )
        if refereed and decided and _fixed(verdict):
            beside = any(m.option("over") == "beside" for m in verdict.evidence.measurements)
            least = min(limits, default=None)
            found["contradicted"] = disagreement(
                Subject.local(recipe, data), verdict.records, approved=released, limit=least, beside=beside
            )
        elif refereed and decided and not released:
            asked = [r.option("threshold") for r in verdict.evidence.measurements]
            shares = [float(t) for t in asked if t is not None]
            said = unseen_seeds(Subject.local(recipe, data), verdict.records, above=min([*limits, *shares]))
            found |= {} if said is None else {"contradicted": said}
    return found


def _fixed(verdict: Any) -> bool:
    """Whether training does not depend on its seed: a mean over seeds is no claim about one of them."""
    seeds = verdict.evidence.run.seeds
    return seeds is None or not seeds.dependent
