"""The per-unit table: what the model gives away about each person, one row each."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import families
from privgate.evidence import (
    CertificateNote,
    IndirectQueries,
    Precondition,
    RegisteredPair,
    SeedNoise,
)
from privgate.evidence.values import told_count
from privgate.families import bound as bounds
from privgate.families import certificates
from privgate.families.certificate import Certified
from privgate.families.pipelines import behind
from privgate.families.retrained import Retrained, Status
from privgate.influence import changes, indirect, leave_one_out
from privgate.run.needs import Need
from privgate.run.run import Run

Float = NDArray[np.float64]
Index = NDArray[np.int64]


def spread(run: Run) -> Mapping[str, Float]:
    """Return what ``per_unit`` says of the chosen units."""
    return changes.per_unit(
        run.once(leave_one_out.retrained), run.subject.release, people=len(run.once(leave_one_out.chosen_units))
    )


def table(run: Run) -> Mapping[str, NDArray[Any]]:
    """Return the per-unit table, one row a measured unit in the data's order; columns of ``evidence.COLUMNS`` and more.

    Beside the promised columns: ``pdtp_low`` and ``pdtp_high`` (nats: numerical error, and for training with randomness
    the confidence limits of the mean over paired seeds, corrected over labels and units), and ``pdtp_registered``
    (nats: the change under the recipe's own seed, which is the registered model's; nothing is judged by it).
    """
    found, direct = run.once(leave_one_out.retrained), run.once(spread)
    lost = changes.without_model(found)
    lower, upper, _ = run.once(over_all_queries)
    return {
        "unit": run.subject.data.unit_names[found.units],
        "label": unit_labels(run, found.units),
        "pdtp": np.where(lost, np.inf, direct["pdtp"]),
        "dtp_lower": lower,
        "dtp_upper": np.maximum(upper, lower),
        "error": np.where(lost, 0.0, 2 * found.error),
        "noise_floor": direct["noise_floor"],
        "seeds": np.full(len(found.units), len(found.seeds), dtype=np.int64),
        "engine": found.engine.astype(str),
        "status": np.array([str(s) for s in found.status]),
        "pdtp_low": np.where(lost, np.inf, direct["pdtp_low"]),
        "pdtp_high": np.where(lost, np.inf, direct["pdtp_high"]),
        "pdtp_registered": np.where(lost, np.inf, _of_own_seed(run, found)),
    }


def over_all_queries(run: Run) -> tuple[Float, Float, IndirectQueries | None]:
    """Return DTP of each unit at the worst question asked and at most, shape (U,), nats, and the search behind it."""
    found, direct, bound = run.once(leave_one_out.retrained), run.once(spread), run.once(certified)
    # a few people who break a rule are no sign of a store
    if not np.isfinite(bound.upper).all() and not run.decided_by and (still := nothing_moves(run, found)):
        run.preconditions.append(still)
    lost = changes.without_model(found)
    lower = np.where(lost, np.inf, np.maximum(direct["pdtp_low"], bound.lower))
    # certificates speak about exact probabilities; what is released instead is bounded by nothing here
    upper = np.where(lost | (not run.subject.release.exact), np.inf, np.maximum(bound.upper, 0.0))
    searched = None
    if Need.EVERY_QUERY in run.asked and not run.decided_by:
        lower, searched = indirect.raised(run, found.units, direct["pdtp"], lower, upper)
    return lower, upper, searched


def nothing_moves(run: Run, found: Retrained) -> Precondition | None:
    """Return the finding that nobody who was left out moved an answer, though training depends on its data; else None.

    A store that answers for the very records it knows passes every control that changes labels or features: this is
    what it leaves behind. "Nothing" is less than a thousandth of what relabelling one record moves, or exactly nothing.
    """
    without = np.array([s in (Status.FAILED, Status.UNDEFINED, Status.SCREENED) for s in found.status], dtype=bool)
    live = ~without[found.row_unit]
    if not live.any():
        return None  # nobody has a model without them: without limit, which is no false zero
    moved = float(np.abs(np.exp(found.log_with[:, live]) - np.exp(found.log_without[:, live])).max())
    single = run.single_median or 0.0
    if moved > 1e-3 * single:
        return None
    people = int((~without).sum())
    text = (
        f"leaving out moved the answer about none of {told_count(people, len(without))} people, though relabelling "
        "single records moves answers: "
        "training without a person may have been answered from a store, and nothing is shown"
    )
    return Precondition("leave_one_out_moves", "inconclusive", text, {"moved": moved, "single_median": single})


def _of_own_seed(run: Run, found: Retrained) -> Float:
    """Return the change under the recipe's own seed alone, shape (U,), nats; NaN where nobody knows it."""
    unpaired = [e.name for e in families.ALL if not e.paired]
    if np.isin(found.engine, unpaired).any() or found.seeds[0] is None or found.seeds[0] != run.subject.recipe.seed:
        return np.full(len(found.units), np.nan)
    one = replace(
        found, seeds=found.seeds[:1], log_with=found.log_with[:1], log_without=found.log_without[:1], changes={}
    )
    return changes.per_unit(one, run.subject.release)["pdtp"]


def registered(run: Run) -> RegisteredPair | None:
    """Return what the registered model's own pair of trainings shows; None where no other seed was used."""
    found = run.once(leave_one_out.retrained)
    if len(found.seeds) == 1 or np.isnan(own := _of_own_seed(run, found)).any():
        return None
    limit = run.thresholds[0] if run.thresholds else 1.0
    return RegisteredPair(worst=float(own.max(initial=0.0)), units_above=int((own > limit).sum()))


def noise(run: Run) -> SeedNoise | None:
    """Return how much another seed alone changes direct answers, and how many people stand out of that noise."""
    if len(run.once(leave_one_out.retrained).seeds) == 1:
        return None
    direct = run.once(spread)
    floor = np.asarray(direct["noise_floor"])
    return SeedNoise(
        floor=float(floor.max(initial=0.0)),
        median=float(np.median(floor)) if len(floor) else 0.0,
        units_above=int((direct["pdtp"] > floor).sum()),
    )


def certified(run: Run) -> Certified:
    """Return the best certificate for each chosen unit, and say which theorems a real model contradicted."""
    bound, _, _ = run.once(_bounded)
    if run.witness is not None:
        for name, (text, values) in run.witness.silenced.items():
            run.preconditions.append(
                Precondition(f"certificate_{name}", "warned", f"the certificate {name} was not used: {text}", values)
            )
    return bound


def _bounded(run: Run) -> tuple[Certified, NDArray[Any], Sequence[str]]:
    limit = run.thresholds[-1] if run.thresholds else None
    found = run.once(leave_one_out.retrained)
    attacked = Need.SHADOWS in run.asked
    return bounds.bound(
        run.subject, found.units, found, limit=limit, witness=run.witness, attacked=attacked, fleet=run.fleet
    )


def certificate_notes(run: Run) -> tuple[CertificateNote, ...]:
    """Return which theorem spoke, and why the others did not."""
    bound, by, because = run.once(_bounded)
    notes = []
    known = behind.certificates(run.subject, certificates.ALL)
    for name, certificate in certificates.ALL.items():
        spoke = int((by == name).sum())
        epsilon = known[name].every_data_set(run.subject) if spoke else np.inf
        epsilon += run.registered_apart[
            1
        ]  # the theorem is about the recipe's model, and released is the registered one
        silent = [text.removeprefix(name).strip() for text in because if text.startswith(f"{name} ")]
        notes.append(
            CertificateNote(
                name=name,
                applies=spoke > 0,
                units=spoke,
                because=silent[0] if silent else "",
                source=certificate.source,
                assumptions=bound.assumptions if spoke else (),
                guarantee="every data set" if np.isfinite(epsilon) else "these data",
                epsilon=epsilon if np.isfinite(epsilon) else None,
            )
        )
    return tuple(notes)


def unit_labels(run: Run, units: Index) -> NDArray[Any]:
    """Return each unit's label as text; "mixed" where a person's records differ."""
    data = run.subject.data
    if data.groups is None:
        return np.asarray(data.y[units]).astype(str)
    return np.array([_common(data.y[data.units[u]]) for u in units])


def _common(labels: NDArray[Any]) -> str:
    return str(labels[0]) if len(set(labels.tolist())) == 1 else "mixed"
