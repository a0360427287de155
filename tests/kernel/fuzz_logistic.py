"""Certificates, honest and not, whose limits are compared with the truth."""

import contextlib
from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from privgate.kernel import Refused, limits
from privgate.theorems.logistic_moves import Leaving
from tests.kernel.problems_logistic import NoMinimumError, log_p, sample, sharp


def honest(s):
    """Return one Newton step for everybody."""
    with np.errstate(all="ignore"):
        return Leaving(s.loss, s.person).propose()


def refined(s, certificate, people=None):
    people = np.arange(s.people) if people is None else people
    return Leaving(s.loss, s.person).refine(certificate, people)


def alone(s, certificate, people):
    return Leaving(s.loss, s.person).minimise_alone(certificate, people)


def certificates(rng, s):
    """Yield (name, certificate): honest ones, and those of cheats."""
    c = honest(s)
    u, W, m = c["at"], c["factor"], np.nan_to_num(c["moves"])
    spread, everybody = np.abs(m).mean(), np.arange(s.people)
    yield "honest", c
    yield "refined", refined(s, c)
    yield "alone", alone(s, c, rng.permutation(s.people)[:8])
    for name, move in {
        "zero": 0 * m, "tenth": m / 10, "opposite": -m, "double": 2 * m, "huge": m * 1e30,
        "noise": m + rng.normal(size=m.shape) * spread, "another person's": m[::-1].copy(),
    }.items():  # fmt: skip
        yield name, {**c, "moves": move}
        yield name + ", swept", {**c, "moves": move, "swept": everybody}
    for name, factor in {
        "half": W / 2, "a little smaller": W * 0.9, "a little larger": W * 1.1,
        "noise": W * (1 + 1e-3 * rng.normal(size=W.shape)),
        "random": rng.normal(size=W.shape) * np.abs(W).mean(),
        "turned": np.linalg.qr(rng.normal(size=W.shape))[0] @ W,
    }.items():  # fmt: skip
        yield "W " + name, {**c, "factor": factor}
    for factor in (W / 2, W * 0.9):
        yield "W smaller, zero", {**c, "factor": factor, "moves": 0 * m}
    for size in (1e-2, 1):
        yield "at off", {**c, "at": u + rng.normal(size=u.shape) * size * np.abs(u).mean()}
    yield "NaN for one", {**c, "moves": np.where(everybody[:, None, None] == 0, np.nan, m)}
    for point, factor in ((u, W), (0 * u, W / 3)):
        own = {"alone_at": np.repeat(point[None], 4, 0), "alone_factor": np.repeat(factor[None], 4, 0)}
        yield "alone elsewhere", {**c, "alone_people": everybody[:4], **own}


@dataclass
class Tally:
    """What was checked: numbers of limits that hold the truth, and that do not; widths by certificate."""

    checked: int = 0
    outside: int = 0
    widths: dict = field(default_factory=lambda: defaultdict(list))
    worst: list = field(default_factory=list)

    def see(self, name, case, who, true, *, at_most=None):
        """Count limits of some people that do not hold ``true``; ``low`` may be as large as ``at_most``."""
        if (limits := judged(case)) is None:
            return None
        low, high = limits.low[who], limits.high[who]
        bad = ~((low <= (true if at_most is None else at_most)) & (true <= high))
        self.checked += len(true)
        self.outside += int(bad.sum())
        self.worst += [(name, *map(float, row)) for row in np.column_stack([low, true, high])[bad]]
        none = np.where(np.isinf(low), 0.0, low)
        self.widths[name] += np.where(np.isinf(high) & np.isinf(low), 0.0, high - none).tolist()
        return high


def judged(case):
    try:
        return limits(case)
    except Refused:
        return None


def own_truth(s, who, *, allowed=None):
    """Return (least, largest) change of a log-probability at each person's own records; infinite where a label goes.
    With ``allowed`` both trainings also end there, in the direction that moves the person's first record most.
    """
    u, most = s.minimum(), np.full(len(who), np.inf)
    least = most.copy()
    for k, i in enumerate(who):
        if (keep := s.kept(i)) is None:
            continue
        rows, v = s.X[s.person == i], s.minimum(keep, u)
        ends = [(u, v)]
        if allowed is not None:
            sign = np.sign(rows[0]) * np.sign(np.arange(len(u)) - 0.5 if len(u) > 1 else 1)[..., None]
            for t in (1, -1):
                with contextlib.suppress(NoMinimumError):
                    one = s.minimum(start=u, tilt=t * sign * allowed)
                    ends.append((one, s.minimum(keep, v, tilt=-t * sign * allowed)))
        true = [float(np.abs(log_p(a, rows) - log_p(b, rows)).max()) for a, b in ends]
        least[k], most[k] = min(true), max(true)
    return least, most


def check_own(rng, tally, *, people=6, s=None):
    """Compare every certificate's limits with the exact minimum, at the records of some people."""
    s = sample(rng) if s is None else s
    who = np.unique(np.append(rng.permutation(s.people)[: people - 1], 0))
    _, true = own_truth(s, who)
    for name, certificate in certificates(rng, s):
        tally.see(name, s.case(certificate), who, true)


def check_sharp(rng, tally):
    """Compare where the proof leaves little to spare."""
    check_own(rng, tally, s=sharp(rng))


def check_stops(rng, tally, *, people=3):
    """Compare with trainings that end as far from their minima as they may."""
    s = sharp(rng) if rng.random() < 0.5 else sample(rng, small=True)
    who = rng.permutation(s.people)[:people]
    allowed = 10.0 ** rng.uniform(-4, -1) * (s.w[:, None] * np.abs(s.X)).sum(axis=0)
    allowed *= 1 if len(np.unique(s.penalty)) == 1 else np.minimum(1, s.penalty)
    (least, most), c = own_truth(s, who, allowed=allowed), honest(s)
    some = c if rng.random() < 0.5 else alone(s, c, who)
    for name, certificate in (("honest", c), ("refined", refined(s, c)), ("alone", some)):
        tally.see(name, s.case(certificate, allowed=allowed), who, most, at_most=least)


def questions(rng, s):
    """Yield (arrays, settings, accepted questions (m, d)) of every kind."""
    d, X = s.d, s.X[:, : s.d]
    low, high = X.min(axis=0) - 0.5 * np.ptp(X, axis=0), X.max(axis=0)
    corners = np.array(list(product(*zip(low, high, strict=True))))
    asked = np.concatenate([corners, low + (high - low) * rng.random((100, d))])
    yield {"box": np.array([low, high])}, {}, asked
    top = np.abs(X).max(axis=0) + 1
    whole = np.floor(top * rng.random((100, d)))
    yield {"box": np.array([-top, top])}, {"whole": True}, whole * rng.choice([-1, 1], size=whole.shape)
    block = rng.integers(-1, 2, d)
    side = np.where(block < 0, low, 0.0), np.where(block < 0, high, 1.0)
    some = side[0] + (side[1] - side[0]) * rng.integers(0, 2, size=(100, d))
    for b in (0, 1):
        inside = np.flatnonzero(block == b)
        some[:, inside] = 0.0
        if len(inside):
            some[np.arange(100), rng.choice(inside, 100)] = rng.integers(0, 2, 100)
    yield {"box": np.array(side), "blocks": block}, {}, some


def check_any(rng, tally, *, people=4):
    """Compare limits over all questions with exact minima at many of them."""
    s = sample(rng, small=True)
    s = replace(s, X=np.column_stack([s.X[:, : s.d] / np.maximum(1, np.abs(s.X[:, : s.d]).max(axis=0)), s.X[:, s.d :]]))
    who = rng.permutation(s.people)[:people]
    u, c, (_, own) = s.minimum(), honest(s), own_truth(s, who)
    left = [None if s.kept(i) is None else s.minimum(s.kept(i), u) for i in who]
    near = alone(s, c, who)
    off = dict(near)
    if "alone_at" in off:
        noise = 10.0 ** rng.uniform(-4, 0) * np.abs(c["at"]).mean() * rng.normal(size=off["alone_at"].shape)
        off["alone_at"] = off["alone_at"] + noise
    shown = {"honest": c, "refined": refined(s, c), "alone": near, "alone, off": off}
    shown |= {f"times {k}": {**c, "moves": k * c["moves"]} for k in (0, 2)}
    for arrays, settings, asked in questions(rng, s):
        x = np.column_stack([asked, np.ones(len(asked))]) if s.intercept else asked
        true = np.array([np.inf if v is None else float(np.abs(log_p(u, x) - log_p(v, x)).max()) for v in left])
        for name, certificate in shown.items():
            case = s.case(certificate, asked="any", arrays=arrays, limit=float(10 ** rng.uniform(-2, 1)), **settings)
            # own records that are accepted are questions too
            tally.see(name, case, who, true, at_most=np.maximum(true, own))
