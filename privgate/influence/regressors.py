"""What leaving one person out does to a regressor's answers: the per-person table, and DTP where noise is added."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.cases import Kept
from privgate.controls.served import describe_release
from privgate.evidence import SensitivityFigures
from privgate.influence import left_out, per_person
from privgate.run.run import Run
from privgate.subject.release import Gaussian, Laplace
from privgate.theorems import least_squares, two_models
from privgate.theorems.theorem import Certified, Units


def measure_moves(run: Run) -> per_person.Moves:
    """Return how far each measured person moves the answers about them."""
    return per_person.measure_moves(run.subject, run.compute(left_out.retrained))


def confirm_lower(run: Run) -> Float:
    """Return the lower limits of ``measure_moves`` that stand where training draws, targets' deviations, shape (U,)."""
    own, refits, noise = run.compute(measure_moves).low, run.compute(left_out.retrained), run.subject.release.noise
    if not run.at_seed or isinstance(noise, Gaussian):
        return own
    scale = run.compute(measure_unit) if noise is None else noise.scale / run.subject.scale[1]
    return per_person.confirm_at_other_seeds(run, refits.units, own / scale, scale) * scale


def limit_domain(run: Run) -> Certified:
    """Return the largest change over the declared domain."""
    subject, refits = run.subject, run.compute(left_out.retrained)
    limited = least_squares.over_domain(subject, refits.units)
    if not limited.why or two_models.refusal(subject):
        return limited
    limited = two_models.LINEAR.certify(Units(subject, refits.units, refits, fleet=run.fleet))
    return replace(limited, cases=tuple(replace(k, theorem=two_models.LINEAR.name) for k in limited.cases))


def list_cases(run: Run) -> tuple[Kept, ...]:
    """Return the cases that limits over the declared domain rest on."""
    return run.compute(limit_domain).cases


def measure_unit(run: Run) -> float:
    """Return the residual deviation at records left out, in deviations of the targets; or raise."""
    return per_person.measure_unit(run, run.compute(measure_moves), missing=bool(left_out.count_missing(run)))


def list_people(run: Run) -> Mapping[str, NDArray[Any]]:
    """Return the per-person table of a regressor, one row a measured person; columns of ``SENSITIVITY_COLUMNS``.

    With Laplace noise on the answers also the columns of a classifier's table, in nats: change over scale.
    """
    refits, own, over = run.compute(left_out.retrained), run.compute(measure_moves), run.compute(limit_domain)
    scale = run.compute(measure_unit)
    noised = {} if run.subject.release.noise is None else run.compute(limit_noised)
    unknown = np.inf if left_out.count_missing(run) else 0.0  # the unit may be smaller
    return {
        "unit": run.subject.data.person_names[refits.units],
        "moved": own.value / scale,
        "moved_low": run.compute(confirm_lower) / scale,
        "moved_high": own.high / scale + unknown,
        "moved_upper": np.maximum(own.high, over.upper) / scale + unknown,
        "noise_floor": own.noise / scale,
        **per_person.list_origins(refits),
        **noised,
    }


def limit_noised(run: Run) -> Mapping[str, Float]:
    """Return PDTP and DTP of each person under the declared noise, nats.

    Laplace noise of scale b: |change| / b. Normal noise bounds no ratio over unbounded answers: infinite.
    """
    noise, own, over = run.subject.release.noise, run.compute(measure_moves), run.compute(limit_domain)
    if isinstance(noise, Laplace):
        each = run.subject.scale[1] / noise.scale
        value, low, high, upper = (each * v for v in (own.value, run.compute(confirm_lower), own.high, over.upper))
    else:
        value, low, high, upper = (np.where(v > 0, np.inf, 0.0) for v in (own.value, own.low, own.high, over.upper))
    upper = np.maximum(upper, high)
    exact = {"dtp_lower": low, "dtp_upper": upper, "error": np.zeros(len(value))}
    return {"pdtp": value, "pdtp_low": low, "pdtp_high": high, **exact}


def show_figures(run: Run) -> SensitivityFigures:
    """Return what the report shows of a regressor's answers next to its rules."""
    own, over, deviation = run.compute(measure_moves), run.compute(limit_domain), run.subject.scale[1]
    records, noise = run.compute(list_people), run.subject.release.noise
    size = np.asarray(records["moved"])
    outside = run.compute(measure_unit) if left_out.count_missing(run) else own.outside
    return SensitivityFigures(
        residual_inside=own.inside * deviation,
        residual_outside=outside * deviation,
        median=float(np.median(size)),
        most=float(size.max()),
        p99=float(np.quantile(size, 0.99, method="inverted_cdf")),
        over_domain=None if over.why else float(np.max(records["moved_upper"])),
        why_no_domain=over.why,
        noise="" if noise is None else describe_release(run.subject.release),
    )
