"""What can be changed about a subject: parameters, shards, other releases, other learners, and people left out last."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from privgate.advice.change import EARLY, Change, Knob, Place, Replacement, Setting, learners, sites
from privgate.check import prepare
from privgate.errors import PrivgateError
from privgate.evidence import Count
from privgate.evidence.telling import SMALL_CELL
from privgate.influence import risky_removal
from privgate.policy import Policy
from privgate.policy.rules.dp_epsilon import DpEpsilon
from privgate.privacy_claims import accountant
from privgate.run.needs import Need
from privgate.subject import estimators
from privgate.subject.release import Laplace, Release
from privgate.subject.subject import Subject

# Other learners in place of a recipe's own: what theorems cover, early stopping, and training with privacy.

#: a part of the way, 0 to 1, to where little is left of the model -> the change
Scale = Callable[[float], Change]
#: name of a learner, and its scale
Family = tuple[str, Scale]

_FORESTS = ("RandomForestClassifier", "ExtraTreesClassifier")
_NETWORKS = ("TorchTraining", "MLPClassifier", "MLPRegressor")
#: epochs of DP-SGD, records a batch, clipping norm; a step is not smaller because noise is added
_EPOCHS, _BATCH, _CLIP = 20, 128, 1.0
#: guarantees that are tried where attacks are limited and nobody says which epsilon: from hardly any to strong
_WEAKEST, _STRONGEST = 16.0, 0.25


def families(subject: Subject, policy: Policy) -> Iterator[Family]:
    """Yield other learners that get weaker on one scale, so that the weakest that passes can be found by halving."""
    for place, name, params in learners(subject.recipe.payload):
        if name in _FORESTS:
            yield "KeyedForest", _keyed(subject, place, params)
    if why_not_private(subject, policy) == "" and not _named_epsilon(policy):
        yield "training with differential privacy", _by_part(subject, policy, _WEAKEST)


def early(subject: Subject) -> Iterator[Change]:
    """Yield early stopping on records that a learner sets aside itself."""
    for place, name, _ in learners(subject.recipe.payload):
        if name in EARLY:
            parameter, value = EARLY[name]
            yield Change(
                says=f"early stopping on records that it sets aside itself ({parameter} {value})",
                kind="parameters",
                settings=(Setting(place=(*place, "params", parameter), value=value),),
            )


def named_private(subject: Subject, policy: Policy) -> Callable[[float], Change] | None:
    """Return private training from the epsilon that a rule names on; None where none does, or there is no such form."""
    named = _named_epsilon(policy)
    return _by_part(subject, policy, named) if named > 0 and why_not_private(subject, policy) == "" else None


def skipped(subject: Subject, policy: Policy, *, public: bool = False) -> Iterator[str]:
    """Yield what is not tried for this recipe, and why; ``public`` records were named or not."""
    names = [name for _, name, _ in learners(subject.recipe.payload)]
    if why := why_not_private(subject, policy):
        yield f"training with differential privacy: {why}"
    if set(names) & set(_NETWORKS) and not public:
        yield "public pre-training, a frozen encoder: no public records were named (--public FILE.npz)"


def _keyed(subject: Subject, place: tuple[str | int, ...], params: Mapping[str, Any]) -> Callable[[float], Change]:
    from privgate.models import KeyedForest

    trees = int(params.get("n_estimators") or 100)
    least = int(params["min_samples_leaf"]) if isinstance(params.get("min_samples_leaf"), int) else 1

    def at(part: float) -> Change:
        leaf, floor = round(least * (200 / least) ** part), float(f"{10 ** (-2 + 2 * part):.3g}")
        made = KeyedForest(
            trees, min_samples_leaf=leaf, floor=floor, classes=subject.classes, random_state=subject.recipe.seed or 0
        )
        return Change(
            says=f"KeyedForest of {trees} trees, min_samples_leaf {leaf}, floor {floor:g}",
            kind="learner",
            learner=Replacement(place=place, spec=estimators.encode(made)),
        )

    return at


def why_not_private(subject: Subject, policy: Policy) -> str:
    """Return why training with differential privacy is not tried; empty if it is."""
    name = next((n for _, n, _ in learners(subject.recipe.payload)), "")
    if name not in ("TorchTraining", "LogisticRegression", "MLPClassifier"):
        return "only networks and linear models without learned first steps have a private form here"
    if subject.recipe.payload["predict"] is not None or subject.recipe.payload["dp"] is not None:
        return "the recipe answers by a function of its own, or is private already"
    if any(r.mode == "enforce" and Need.LEAVE_ONE_OUT in r.about.needs for r in policy.rules):
        return "its noise is drawn anew each time, and rules on single people then need 75 trainings a person"
    missing = [m for m in ("torch", "opacus") if find_spec(m) is None]
    return f"it needs {' and '.join(missing)}: `pip install 'privgate[torch,dp]'`" if missing else ""


def private(subject: Subject, epsilon: float, delta: float) -> Change:
    """Return the recipe's network, or a linear model, trained by DP-SGD at a guarantee, with that claim.

    Raises
    ------
    MeasurementError
        No noise is enough.
    """
    from privgate.torch_recipe import PrivateTorchTraining

    place, name, params = next(learners(subject.recipe.payload))
    n = subject.data.n
    own = {"hidden": (), "lr": 1.0}
    if name == "MLPClassifier":
        hidden = estimators.decode(params["hidden_layer_sizes"], str)
        own = {"hidden": (hidden,) if isinstance(hidden, int) else tuple(hidden), "lr": 0.5}
    if name == "TorchTraining":
        kept = ("hidden", "activation", "module", "loss", "schedule", "optimizer", "lr", "momentum", "weight_decay")
        own = {k: v for k, v in params.items() if k in kept}
    batch = max(1, min(_BATCH, n // 4))
    per_epoch = math.ceil(n / batch)
    rate, steps = 1 / per_epoch, _EPOCHS * per_epoch
    noise = accountant.noise_multiplier(
        epsilon, delta, sample_rate=rate, steps=steps, sampling="poisson", adjacency="replace_one"
    )
    spec = estimators.encode(
        PrivateTorchTraining(
            batch_size=batch, epochs=_EPOCHS, noise_multiplier=noise, max_grad_norm=_CLIP, classes=subject.classes
        )
    )
    # what names the user's code stays a name: nothing of it is imported here
    spec["params"] |= own if name == "TorchTraining" else {k: estimators.encode(v) for k, v in own.items()}
    what = "the network" if own.get("hidden") != () else "a linear model"
    return Change(
        says=f"{what} trained by DP-SGD, epsilon {epsilon:g} at delta {delta:g} "
        f"(noise {noise:g}, clipping {_CLIP:g}, {steps} steps of {batch} records)",
        kind="private",
        learner=Replacement(place=place, spec=spec),
        claim={
            "mechanism": "dp-sgd",
            "adjacency": "replace_one",  # the library's divisor and rate follow the number of records
            "epsilon": epsilon,
            "delta": delta,
            "noise_multiplier": noise,
            "sample_rate": rate,
            "steps": steps,
            "max_grad_norm": _CLIP,
            "sampling": "poisson",
            "accountant": "privgate",
        },
    )


def _by_part(subject: Subject, policy: Policy, weakest: float) -> Callable[[float], Change]:
    delta, strongest = _delta(subject, policy), min(_STRONGEST, weakest)

    def at(part: float) -> Change:
        return private(subject, float(f"{weakest * (strongest / weakest) ** part:.3g}"), delta)

    return at


def _named_epsilon(policy: Policy) -> float:
    """Return the epsilon that a rule of the policy names; 0 if none does."""
    return min((float(r.limit) for r in _about_epsilon(policy)), default=0.0)


def _delta(subject: Subject, policy: Policy) -> float:
    """Return the delta that a rule names, or well below one in the number of records."""
    usual = float(10 ** -math.ceil(np.log10(subject.data.n) + 1))
    return min((r.delta for r in _about_epsilon(policy)), default=usual)


def _about_epsilon(policy: Policy) -> list[DpEpsilon]:
    return [r for r in policy.rules if isinstance(r, DpEpsilon) and r.mode == "enforce"]


SHARDS = (4, 10, 20)  # members of an ensemble that are tried
#: people left out at most: of all, and so many
REMOVED, MOST_REMOVED = 0.05, 20

#: the model as it stands
NOTHING = Change(says="the model as it stands")

_RELEASES = (
    ("rounded to one digit", Release(form="rounded", step=0.1), ""),
    ("in four bins", Release(form="binned", step=0.25), ""),
    ("the three most likely labels", Release(form="top_k", k=3), ""),
    ("the most likely label with its probability", Release(form="top_k", k=1), ""),
    ("the label alone", Release(form="label"), ""),
    (
        "probabilities at temperature 10",
        Release(temperature=10.0),
        "it makes the numbers smaller and hands out the same knowledge: whoever knows the temperature undoes it",
    ),
)


def present_values(subject: Subject) -> list[tuple[Place, Knob, float]]:
    """Return every knob of a recipe that can still be turned, with where to start."""
    found = ((place, knob, knob.start(value)) for place, knob, value in sites(subject.recipe.payload))
    return [(place, knob, start) for place, knob, start in found if start is not None]


def knob_change(place: Place, knob: Knob, start: float, part: float, *, beside: bool = False) -> Change:
    """Return one knob turned a part of its way, with what belongs beside it or without."""
    value = knob.between(start, part)
    also = knob.beside if beside else ()
    return Change(
        says=", ".join([f"{knob.parameter} {start:g} becomes {value:g}", *(f"{name} {v}" for name, v in also)]),
        kind="parameters",
        settings=(
            Setting(place=place, value=value),
            *(Setting(place=(*place[:-1], name), value=v) for name, v in also),
        ),
    )


def knob_scales(subject: Subject) -> Iterator[list[Scale]]:
    """Yield the scales of each knob: alone, and then with what belongs beside it."""
    for place, knob, start in present_values(subject):
        yield [
            partial(knob_change, place, knob, start, beside=beside)
            for beside in ((False, True) if knob.beside else (False,))
        ]


def together(subject: Subject) -> Iterator[list[Scale]]:
    """Yield the scale that turns every knob by the same part of its way: less of each is enough."""
    knobs = present_values(subject)

    def at(part: float) -> Change:
        turned = [knob_change(place, knob, start, part) for place, knob, start in knobs]
        return Change(
            says="; ".join(t.says for t in turned),
            kind="parameters",
            settings=tuple(setting for t in turned for setting in t.settings),
        )

    if len(knobs) > 1:
        yield [at]


def releases(subject: Subject) -> Iterator[Change]:
    """Yield coarser answers of a classifier that releases exact ones."""
    if not subject.release.exact or subject.task == "regression":
        return
    for says, release, games in _RELEASES:
        if release.form == "top_k" and release.k >= len(subject.classes):
            continue
        yield Change(says=f"release {says}", kind="release", release=release.payload(), games=games)


def sharded(subject: Subject, limits: tuple[float, ...]) -> Iterator[Change]:
    """Yield the same learner in shards, clipped to the policy's own limit: a theorem then holds whatever it does."""
    payload = subject.recipe.payload
    if payload["kind"] != "estimator" or payload["predict"] is not None or not limits:
        return
    if subject.task == "regression" or payload["dp"] is not None:
        return
    if subject.recipe.own_model is not None or subject.data.groups is not None:
        return
    for k in SHARDS:
        yield Change(
            says=f"trained in {k} shards, answers clipped to {min(limits):g} nats",
            kind="shards",
            shards=k,
            dtp=min(limits),
        )


def removals(subject: Subject, limits: tuple[float, ...]) -> risky_removal.RiskyRemoval | None:
    """Return the largest value while the riskiest people go, where that can be computed without training.

    It goes on where the limit is kept: who sees the first dip alone does not see that the next removal may undo it.
    """
    budget = min(MOST_REMOVED, max(1, int(REMOVED * len(subject.data.units))))
    try:
        return risky_removal.remove_risky(subject, limit=0.0, budget=budget) if limits else None
    except PrivgateError:
        return None  # it would take a training for each person and removal


def fewest(found: risky_removal.RiskyRemoval, limit: float) -> int:
    """Return how many removals keep a limit first, or make the largest value smallest."""
    kept = np.flatnonzero(found.upper <= limit)
    return int(kept[0]) if len(kept) else found.best


def left_out(
    subject: Subject, found: risky_removal.RiskyRemoval, limit: float, draw: np.random.Generator
) -> Iterator[Change]:
    """Yield the riskiest people left out, others drawn by chance among them where they are few.

    Two versions tell how many lie between them: it is never a number so small that it tells of somebody.
    """
    risky = found.order[: fewest(found, limit)]
    others = np.setdiff1d(np.arange(len(subject.data.units)), risky)
    gone = np.concatenate([risky, draw.permutation(others)[: max(0, SMALL_CELL - len(risky))]])
    if len(risky) and len(gone) <= REMOVED * len(subject.data.units):
        yield Change(
            says=f"{Count(len(gone))} people left out, the riskiest among them",
            kind="remove",
            removed=tuple(sorted(int(u) for u in gone)),
        )


def noisy(subject: Subject) -> Callable[[float], Change] | None:
    """Return Laplace noise on a regressor's answers, from a hundredth to ten deviations of the targets; else None."""
    if subject.task != "regression" or subject.release.noise is not None:
        return None
    deviation = subject.scale[1]

    def at(part: float) -> Change:
        scale = float(f"{deviation * 10 ** (3 * part - 2):.3g}")
        release = Release(noise=Laplace(scale))
        return Change(
            says=f"Laplace noise of scale {scale:g} on every answer", kind="release", release=release.payload()
        )

    return at


def most(subject: Subject, policy: Policy, *, halvings: int) -> int:
    """Return how many candidates a search measures at most, without computing any."""
    scales = [s for found in (*knob_scales(subject), *together(subject)) for s in found]
    count = len(scales) + len(list(families(subject, policy))) + (noisy(subject) is not None)
    limits = prepare.unit_limits(policy)
    others = itertools.chain(early(subject), sharded(subject, limits), releases(subject))
    private = 0 if named_private(subject, policy) is None else 1 + halvings
    return halvings * count + len(list(others)) + (1 if limits else 0) + private
