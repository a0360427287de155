"""Certificates, honest and not, whose limits are compared with the truth."""

import contextlib
from dataclasses import dataclass, replace
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
    """Yield (name, certificate): honest ones, and those of 14 cheats."""
    c = honest(s)
    u, W, m = c["at"], c["factor"], c["moves"]
    m = np.where(np.isfinite(m), m, 0.0)
    spread, everybody = np.abs(m).mean(), np.arange(s.people)
    yield "honest", c
    yield "refined", refined(s, c)
    yield "alone", alone(s, c, rng.permutation(s.people)[:8])
    for name, move in (
        ("zero", 0 * m),
        ("tenth", m / 10),
        ("opposite", -m),
        ("double", 2 * m),
        ("noise", m + rng.normal(size=m.shape) * spread),
        ("another person's", m[::-1].copy()),
        ("huge", m * 1e30),
    ):
        yield name, {**c, "moves": move}
        yield name + ", swept", {**c, "moves": move, "swept": everybody}
    yield "W half", {**c, "factor": W / 2}
    yield "W half, zero", {**c, "factor": W / 2, "moves": 0 * m}
    yield "W a little smaller, zero", {**c, "factor": W * 0.9, "moves": 0 * m}
    yield "W a little larger", {**c, "factor": W * 1.1}
    yield "W a little smaller", {**c, "factor": W * 0.9}
    yield "W noise", {**c, "factor": W * (1 + 1e-3 * rng.normal(size=W.shape))}
    yield "W random", {**c, "factor": rng.normal(size=W.shape) * np.abs(W).mean()}
    yield "W turned", {**c, "factor": np.linalg.qr(rng.normal(size=W.shape))[0] @ W}
    yield "at off", {**c, "at": u + rng.normal(size=u.shape) * 1e-2 * np.abs(u).mean()}
    yield "at far off", {**c, "at": u + rng.normal(size=u.shape) * np.abs(u).mean()}
    yield "NaN for one", {**c, "moves": np.where(np.arange(s.people)[:, None, None] == 0, np.nan, m)}
    other = {
        **c,
        "alone_people": everybody[:4],
        "alone_at": np.repeat(u[None], 4, 0),
        "alone_factor": np.repeat(W[None], 4, 0),
    }
    yield "alone at everybody's minimum", other
    yield (
        "alone at nothing",
        {**other, "alone_at": np.zeros((4, *u.shape)), "alone_factor": np.repeat(W[None] / 3, 4, 0)},
    )


@dataclass
class Tally:
    """What was checked: numbers of limits that hold the truth, that do not, of cases refused; widths by certificate."""

    checked: int = 0
    outside: int = 0
    refused: int = 0

    def __post_init__(self):
        self.widths, self.open, self.worst = {}, {}, []

    def see(self, name, low, high, true, note="", *, at_most=None):
        """Count limits that do not hold ``true``; ``low`` may be as large as ``at_most``."""
        self.checked += len(true)
        bad = ~((low <= (true if at_most is None else at_most)) & (true <= high))
        self.outside += int(bad.sum())
        self.worst += [(name, note, *map(float, row)) for row in np.column_stack([low, true, high])[bad]]
        width = np.where(np.isinf(high), np.where(np.isinf(low), 0.0, np.inf), high - np.where(np.isinf(low), 0.0, low))
        self.widths.setdefault(name, []).extend(width.tolist())
        self.open.setdefault(name, []).extend(((low <= 1) & (high > 1)).tolist())


def judged(tally, case):
    try:
        return limits(case)
    except Refused:
        tally.refused += 1
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


def check_own(rng, tally, *, K=None, people=6, small=False, made=None):
    """Compare every certificate's limits with the exact minimum, at the records of some people."""
    s = sample(rng, K=K, small=small) if made is None else made
    who = np.unique(np.append(rng.permutation(s.people)[: people - 1], 0))
    _, true = own_truth(s, who)
    for name, certificate in certificates(rng, s):
        found = judged(tally, s.case(certificate))
        if found is not None:
            tally.see(name, found.low[who], found.high[who], true)


def check_sharp(rng, tally):
    """Compare where the proof leaves little to spare."""
    check_own(rng, tally, made=sharp(rng))


def check_stops(rng, tally, *, K=None, people=3):
    """Compare with trainings that end as far from their minima as they may."""
    s = sharp(rng) if rng.random() < 0.5 else sample(rng, K=K, small=True)
    who = rng.permutation(s.people)[:people]
    allowed = 10.0 ** rng.uniform(-4, -1) * (s.w[:, None] * np.abs(s.X)).sum(axis=0)
    allowed *= 1 if len(np.unique(s.penalty)) == 1 else np.minimum(1, s.penalty)
    (least, most), c = own_truth(s, who, allowed=allowed), honest(s)
    some = c if rng.random() < 0.5 else alone(s, c, who)
    for name, certificate in (("honest", c), ("refined", refined(s, c)), ("alone", some)):
        if (found := judged(tally, s.case(certificate, allowed=allowed))) is not None:
            tally.see(name, found.low[who], found.high[who], most, at_most=least)


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
    length = 0.1 + float(np.median(np.abs(X).sum(axis=1)))
    some = rng.dirichlet(np.ones(d) / 3, 100) * length * rng.random((100, 1)) ** 0.1 * (1 - 1e-12)
    yield {}, {"length": length}, np.concatenate([some, length * np.eye(d)])
    some = np.abs(rng.normal(size=(100, d)))
    some = some / np.linalg.norm(some, axis=1, keepdims=True) * length * (1 - 1e-12)
    yield {}, {"norm": length}, some
    some = np.minimum(some, top / 2)
    yield {"box": np.array([-top, top / 2])}, {"norm": length, "length": 10 * length}, some
    block = rng.integers(-1, 2, d)
    side = np.where(block < 0, low, 0.0), np.where(block < 0, high, 1.0)
    some = side[0] + (side[1] - side[0]) * rng.integers(0, 2, size=(100, d))
    for b in (0, 1):
        inside = np.flatnonzero(block == b)
        some[:, inside] = 0.0
        if len(inside):
            some[np.arange(100), rng.choice(inside, 100)] = rng.integers(0, 2, 100)
    yield {"box": np.array(side), "blocks": block}, {}, some


def check_any(rng, tally, *, K=None, people=4):
    """Compare limits over all questions with exact minima at many of them."""
    s = sample(rng, K=K, small=True)
    s = replace(s, X=np.column_stack([s.X[:, : s.d] / np.maximum(1, np.abs(s.X[:, : s.d]).max(axis=0)), s.X[:, s.d :]]))
    who = rng.permutation(s.people)[:people]
    u, c, (_, own) = s.minimum(), honest(s), own_truth(s, who)
    left = [None if s.kept(i) is None else s.minimum(s.kept(i), u) for i in who]
    off = alone(s, c, who)
    if "alone_at" in off:
        noise = 10.0 ** rng.uniform(-4, 0) * np.abs(c["at"]).mean() * rng.normal(size=off["alone_at"].shape)
        off = {**off, "alone_at": off["alone_at"] + noise}
    for arrays, settings, asked in questions(rng, s):
        x = np.column_stack([asked, np.ones(len(asked))]) if s.intercept else asked
        true = np.array([np.inf if v is None else float(np.abs(log_p(u, x) - log_p(v, x)).max()) for v in left])
        for name, certificate in (
            ("honest", c),
            ("refined", refined(s, c)),
            ("alone", alone(s, c, who)),
            ("alone, off", off),
            ("zero", {**c, "moves": 0 * c["moves"]}),
            ("double", {**c, "moves": 2 * c["moves"]}),
        ):
            case = s.case(certificate, asked="any", arrays=arrays, limit=float(10 ** rng.uniform(-2, 1)), **settings)
            if (found := judged(tally, case)) is not None:
                # own records that are accepted are questions too
                tally.see(name, found.low[who], found.high[who], true, repr(settings), at_most=np.maximum(true, own))


def check_library(rng, tally, *, K=None, people=4):
    """Compare limits with what real refits of scikit-learn release, at own records and over a box."""
    s = sample(rng, K=K, library=True, small=True)
    if (model := s.refit()) is None:
        return
    who = rng.permutation(s.people)[:people]
    left = {int(i): s.refit(s.kept(i)) for i in who if s.kept(i) is not None}
    allowed, c = s.allowed(), honest(s)
    X = s.X[:, : s.d]
    box = np.array([X.min(axis=0), X.max(axis=0)])
    if rng.random() < 0.5:  # as wide as digits last
        box *= max(1.0, rng.uniform(20, 36) / max(1e-9, np.abs(model.coef_ @ np.abs(box).max(axis=0)).max()))
    corners = np.array(list(product(*box.T)))
    corners = np.concatenate([corners, box[0] + (box[1] - box[0]) * rng.random((200, s.d))])
    for name, certificate in (
        ("honest", c),
        ("refined", refined(s, c)),
        ("alone", alone(s, c, who)),
    ):
        own = judged(tally, s.case(certificate, allowed=allowed))
        any_ = judged(tally, s.case(certificate, allowed=allowed, asked="any", arrays={"box": box}))
        for i, other in left.items():
            if other is None or own is None:
                continue
            x = X[s.person == i]
            true = np.array([released(model, other, x)])
            tally.see(name, own.low[[i]], own.high[[i]], true)
            more = np.array([max(true[0], released(model, other, corners))])
            # own records lie in the box, so their low counts for it
            tally.see(name + ", box", any_.low[[i]], any_.high[[i]], more)


def released(model, other, x):
    """Return the largest change of the logarithm of a released probability."""
    with np.errstate(divide="ignore", invalid="ignore"):
        change = np.abs(np.log(model.predict_proba(x)) - np.log(other.predict_proba(x)))
    return float(np.nan_to_num(change, nan=np.inf, posinf=np.inf).max())


def check_search(rng, tally, *, K=None, rounds=60):
    """Search for a certificate that makes one person's upper limit smallest; compare every one on the way."""
    s = sample(rng, K=K, small=True)
    i = int(rng.integers(s.people))
    (_, true), best, c = own_truth(s, [i]), np.inf, honest(s)
    move = rng.normal(size=c["moves"][i].shape) * np.abs(np.nan_to_num(c["moves"])).mean() * rng.choice([0, 1, 3])
    c["moves"] = np.nan_to_num(c["moves"])
    c["moves"][i] = move
    for _ in range(rounds):
        size = 10.0 ** rng.uniform(-6, 0)
        tried = {
            "at": c["at"] + size * rng.normal(size=c["at"].shape) * np.abs(c["at"]).mean() * (rng.random() < 0.5),
            "factor": c["factor"] * (1 + 0.3 * size * rng.normal() * (rng.random() < 0.5))
            + 0.1 * size * rng.normal(size=c["factor"].shape) * np.abs(c["factor"]).mean() * (rng.random() < 0.5),
            "moves": c["moves"].copy(),
        }
        tried["moves"][i] = move * (1 + size * rng.normal()) if rng.random() < 0.5 else move
        found = judged(
            tally, s.case({**tried, "swept": np.arange(len(tried["moves"]))} if rng.random() < 0.3 else tried)
        )
        if found is None:
            continue
        tally.see("search", found.low[[i]], found.high[[i]], true)
        if found.high[i] < best:
            best, c = found.high[i], tried
