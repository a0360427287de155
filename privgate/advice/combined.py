"""Several knobs at once: Optuna proposes, the same measurements answer."""

import math
from collections.abc import Callable
from typing import Any

from privgate.advice.candidates import present_values
from privgate.advice.change import Change, Setting
from privgate.advice.point import Point
from privgate.subject.subject import Subject

#: tries; boosting has four or five knobs
TRIALS = 12


def combined(subject: Subject, tried: Callable[[Change], Point], over: Callable[[], bool]) -> str:
    """Try settings of several knobs together, towards a useful model within the limit.

    Returns why not all were tried; empty if they were, or there is nothing to combine.
    """
    knobs = present_values(subject)
    if len(knobs) < 2:
        return ""
    try:
        import optuna
    except ImportError:
        return "several parameters together: `pip install 'privgate[advise]'` for Optuna"
    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def excess(trial: Any) -> list[float]:
        return [float(trial.user_attrs.get("excess", 1.0))]

    # from Optuna 5 on a trial is told itself
    told = hasattr(optuna.trial.Trial, "set_constraint")
    sampler = optuna.samplers.TPESampler(
        seed=0, n_startup_trials=TRIALS // 2, **({} if told else {"constraints_func": excess})
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    # from the middle of the way: all at their weakest is the model as it stands
    study.enqueue_trial({str(i): 0.5 for i in range(len(knobs))})
    for _ in range(TRIALS):
        if over():
            return "several parameters together: the time is spent"
        trial = study.ask()
        parts = [trial.suggest_float(str(i), 0.0, 1.0) for i in range(len(knobs))]
        values = [knob.between(start, part) for (_, knob, start), part in zip(knobs, parts, strict=True)]
        says = ", ".join(f"{knob.parameter} {value:g}" for (_, knob, _), value in zip(knobs, values, strict=True))
        settings = tuple(Setting(place=place, value=v) for (place, _, _), v in zip(knobs, values, strict=True))
        point = tried(Change(says=says, kind="parameters", settings=settings))
        known = not math.isnan(point.of_limit)
        beyond = min(point.of_limit, 1e9) - 1.0 if known else (-1.0 if point.passes else 1e9)
        if told:
            trial.set_constraint("risk", beyond)
        else:
            trial.set_user_attr("excess", beyond)
        study.tell(trial, point.useful if not math.isnan(point.useful) else -1e9)
    return ""
