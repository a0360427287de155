"""Whether candidates are members in disguise: nearly equal records, compared with how alike distinct people are.

A copy that was stored as float32, rounded, shaken by a thousandth or changed in a few columns has other bits but agrees
with its original in nearly all columns. So do honest people where there are few columns with few values. What is judged
is therefore how much oftener a candidate has such a twin among the members than a member has among the other members.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Bool, Float, Index
from privgate.controls.data import Print
from privgate.evidence import Count
from privgate.evidence.telling import share as hide_share
from privgate.subject.containers import as_numbers, length
from privgate.subject.data import TrainingData

Code = NDArray[np.uint8]

#: columns (or hashes of a text or a sparse record) that are compared
WIDTH = 64
#: parts that a column of many values is cut into, equally full; neighbours count as equal
PARTS = 64
#: parts of a factor e that an entry of a sparse record is told by: a thousandth more is seldom another part
FINE = 32
#: a twin agrees in at least this share of the columns
ALIKE = 0.6
#: comparisons (pairs of records times columns) a check may cost; beyond, a random sample of either side is looked at
MOST_COMPARISONS = 1_500_000_000
#: probability that an honest split is called too alike; before members are charged for a twin, errors cost less
LEVEL, CHARGED = 1e-4, 1e-2
#: candidates with a twin beyond what chance explains: from this share on, no attack is judged
MOST_TWINS = 0.05
#: records may be left out of the trials on account of a twin if distinct members have one no oftener than this
RARE = 0.002


@dataclass(frozen=True, eq=False)
class Twins:
    """How many candidates agree with a member in nearly everything.

    Parameters
    ----------
    checked, among : int
        Candidates and members that were looked at.
    share, usual : float
        Share of candidates with a twin among the members, and share of members with one among members of other people,
        at the number of agreeing columns where the two differ most.
    excess : float
        ``(share - usual) / (1 - usual)``: candidates whose twin chance does not explain; 0 where it explains all.
    clear : bool
        The excess would be seen in an honest split with probability at most 1e-4.
    rows : int64 array
        Pool rows, candidates and members, that have a twin among the members, or are one, by a standard at which
        distinct members hardly ever have one; they are no trials. Empty where only a sample was looked at.
    others : int
        Members who have a twin among the members by that standard.
    """

    checked: int
    share: float
    usual: float
    excess: float
    clear: bool
    rows: Index
    others: int = 0
    among: int = 0

    @property
    def shares(self) -> tuple[float, float]:
        """``share`` and ``usual`` as a report may say them: of a few people, the most that they could be."""
        one = hide_share(self.share, self.share, self.checked)[1]
        return one, hide_share(self.usual, self.usual, self.among)[1]

    @property
    def sentence(self) -> str:
        """What was seen, in words from which no small count of people follows."""
        words = [
            f"{'up to ' if Count(round(s * n), n).hidden else ''}{s:.1%}"
            for s, n in zip(self.shares, (self.checked, self.among), strict=True)
        ]
        text = f"{words[0]} of the candidates that were compared are nearly equal to a training record"
        return f"{text}, where {words[1]} would be by chance"

    @property
    def too_many(self) -> bool:
        """Whether so many candidates are members in disguise that members cannot be told from others."""
        return self.clear and self.excess >= MOST_TWINS


def find_twins(data: TrainingData, trial: Bool) -> Twins | None:
    """Return how alike candidates and members are; None without candidates or where records cannot be compared.

    Parameters
    ----------
    data : TrainingData
    trial : bool array of shape (P,)
        Pool rows that serve as trials: no other person's row equals them exactly.

    Notes
    -----
    Labels are not compared. Candidates are independent draws given the members, under the null; members' best matches
    come in pairs, so that half of them are counted. One-sided Fisher test a limit, corrected for the limits.
    """
    n = data.n
    if min(int(trial[:n].sum()), int(trial[n:].sum())) < 2 or (codes := code_records(data)) is None:
        return None
    owner = np.concatenate([data.units.owner, np.full(len(codes) - n, -1)])
    outside, inside = n + np.flatnonzero(trial[n:]), np.flatnonzero(trial[:n])
    columns, rng = codes.shape[1], np.random.default_rng(17)
    most = max(200, MOST_COMPARISONS // (2 * n * columns))
    whole = max(len(inside), len(outside)) <= most
    if not whole:
        outside, inside = (np.sort(rng.permutation(r)[:most]) for r in (outside, inside))
    best_outside, nearest = match_best(codes, outside, owner, n)
    best_inside, _ = match_best(codes, inside, owner, n)
    limits = np.arange(columns, max(1, int(np.ceil(ALIKE * columns))) - 1, -1)
    worst, rare = (1.0, 0.0, 0.0, 0.0), 0
    for limit in limits:
        hits, other = int((best_outside >= limit).sum()), int((best_inside >= limit).sum())
        usual, share = other / len(inside), hits / len(outside)
        rare = int(limit) if usual <= RARE else rare
        p = test_oftener(hits, len(outside), other, len(inside)) * len(limits)
        excess = max(0.0, (share - usual) / (1 - usual)) if usual < 1 else 0.0
        if p <= LEVEL and excess > worst[1]:
            worst = (p, excess, share, usual)
    alike = np.zeros(0, dtype=np.int64)
    if whole and rare:
        hit = best_outside >= rare
        alike = np.unique(np.concatenate([outside[hit], nearest[hit], inside[best_inside >= rare]])).astype(np.int64)
    p, excess, share, usual = worst
    others = int((best_inside >= rare).sum()) if rare else 0
    return Twins(len(outside), share, usual, excess, p <= LEVEL, alike, others, len(inside))


def test_oftener(hits: int, among: int, usual: int, of: int) -> float:
    """Return P(at least ``hits`` of ``among`` candidates match) if members match one another as often.

    One-sided Fisher test; members' matches come in pairs, so that half of them are counted.
    """
    from scipy.stats import hypergeom

    half, pairs = -(-usual // 2), -(-of // 2)
    return float(hypergeom.sf(hits - 1, among + pairs, hits + half, among))


def match_best(codes: Code, rows: Index, owner: Index, n: int) -> tuple[Index, Index]:
    """Return, for each of ``rows``, in how many columns the most similar member of another person agrees, and who."""
    count, who = np.empty(len(rows), dtype=np.int64), np.empty(len(rows), dtype=np.int64)
    columns = np.ascontiguousarray(codes[:n].T)
    block = max(1, (1 << 22) // n)
    for start in range(0, len(rows), block):
        own = rows[start : start + block]
        same = np.zeros((len(own), n), dtype=np.uint8)
        for j, column in enumerate(columns):
            # the difference wraps around: -1, 0 and 1 become 0, 1 and 2
            same += (codes[own, j][:, None] - column[None, :] + np.uint8(1)) <= 2
        same[owner[own][:, None] == owner[None, :n]] = 0
        who[start : start + block] = same.argmax(axis=1)
        count[start : start + block] = same.max(axis=1)
    return count, who


def code_records(data: TrainingData) -> Code | None:
    """Return every pool record as small numbers, shape (P, w): two are alike in a column if they differ by at most 1.

    A column of up to 64 values has a code a value, three apart; one of more values has its 64-quantiles; text and
    categories, without case and spaces, a hash. A sparse record is told by 64 smallest hashes of its columns with their
    values, a text by those of its words. None where records cannot be compared.
    """
    if data.candidates is None:
        return None
    sides = (data.X, data.candidates[0])
    if hasattr(data.X, "tocsr"):
        return np.concatenate([_sketch(_list_entries(X)) for X in sides])
    if hasattr(data.X, "columns"):
        if set(sides[0].columns) != set(sides[1].columns):
            return None
        one, other = sides[0], sides[1][list(sides[0].columns)]  # as the pool puts them together
        return _thin([_code_column(one.iloc[:, j], other.iloc[:, j]) for j in range(one.shape[1])])
    if hasattr(data.X, "shape"):
        one, other = (np.asarray(X).reshape(length(X), -1) for X in sides)
        if one.shape[1] != other.shape[1] or one.shape[1] == 0:
            return None
        some = np.random.default_rng(11).permutation(one.shape[1])[: 8 * WIDTH]  # the rest of an image is not coded
        return _thin([_code_column(one[:, j], other[:, j]) for j in np.sort(some)])
    if all(isinstance(v, str) for X in sides for v in X):
        return np.concatenate([_sketch([_list_words(v) for v in X]) for X in sides])
    return None


def _thin(columns: list[Code]) -> Code:
    """Return at most 64 columns: the half that tells most, and others drawn by chance, none that is constant."""
    shares = [np.bincount(c) / len(c) for c in columns]
    entropy = np.array([-(s[s > 0] * np.log(s[s > 0])).sum() for s in shares])
    some = np.flatnonzero(entropy > 0) if (entropy > 0).any() else np.arange(min(1, len(columns)))
    if len(some) > WIDTH:
        order = some[np.argsort(-entropy[some], kind="stable")]
        rest = np.random.default_rng(13).permutation(order[WIDTH // 2 :])[: WIDTH - WIDTH // 2]
        some = np.sort(np.concatenate([order[: WIDTH // 2], rest]))
    return np.stack([columns[int(j)] for j in some], axis=1)


def _code_column(one: Any, other: Any) -> Code:
    first, second = _read_numbers(one), _read_numbers(other)
    if first is None or second is None:
        words = [[_simplify(v) for v in side.tolist()] for side in (one, other)]
        return np.concatenate([(_hash(w) % np.uint64(83) * np.uint64(3)).astype(np.uint8) for w in words])
    values = np.sort(first[np.isfinite(first)])
    known = np.unique(values)
    few = len(known) <= PARTS
    edges = (known[1:] + known[:-1]) / 2 if few else np.unique(values[np.arange(1, PARTS) * len(values) // PARTS])
    codes = [np.searchsorted(edges, v) * (3 if few else 1) for v in (first, second)]
    missing = 250
    both = zip((first, second), codes, strict=True)
    return np.concatenate([np.where(np.isfinite(v), c, missing).astype(np.uint8) for v, c in both])


def _read_numbers(values: Any) -> Float | None:
    """Return a column as float64 if it holds numbers, also where they are kept as text; else None."""
    if (numbers := as_numbers(values)) is not None:
        return numbers
    try:
        text = getattr(values.dtype, "kind", "O") in "OUS"
        return (
            np.array([np.nan if v is None else float(v) for v in values.tolist()], dtype=np.float64) if text else None
        )
    except (TypeError, ValueError):
        return None


def _simplify(value: Any) -> str:
    return re.sub(r"[\W_]+", " ", str(value)).strip().casefold()


def _hash(values: list[str]) -> Print:
    from pandas.util import hash_array

    return np.asarray(hash_array(np.array(values, dtype=object)), dtype=np.uint64)


def _list_words(text: str) -> Print:
    """Return hashes of the words of a text, or of its pieces of four letters where it has few words."""
    plain = _simplify(text)
    words = plain.split()
    if len(words) < 8:
        words = [plain[i : i + 4] for i in range(max(1, len(plain) - 3))]
    return _hash(sorted(set(words)))


def _list_entries(X: Any) -> list[Print]:
    """Return a number for each filled column of a sparse record together with the size of its value."""
    csr = X.tocsr().copy()
    csr.sum_duplicates()
    csr.eliminate_zeros()
    values = np.nan_to_num(csr.data.astype(np.float64))
    with np.errstate(divide="ignore"):
        size = np.floor(np.nan_to_num(FINE * np.log(np.abs(values)), neginf=0.0) + 0.5).astype(np.int64)
    # any dtype of either side gives the same numbers
    entries = csr.indices.astype(np.int64) * np.int64(1 << 20) + 2 * size + (values < 0)
    bounds = zip(csr.indptr[:-1], csr.indptr[1:], strict=True)
    return [entries[a:b].view(np.uint64) for a, b in bounds]


def _sketch(rows: list[Print]) -> Code:
    """Return 64 smallest hashes a record (Broder, 1997): two agree in about the share of entries that both have."""
    rng = np.random.default_rng(19)
    odd = rng.integers(1 << 62, size=WIDTH, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    shift = rng.integers(1 << 62, size=WIDTH, dtype=np.uint64)
    out = np.zeros((len(rows), WIDTH), dtype=np.uint8)
    for i, row in enumerate(rows):
        if len(row):
            mixed = row[:, None] * odd + shift
            mixed ^= mixed >> np.uint64(31)
            mixed *= np.uint64(0x9E3779B97F4A7C15)
            least = (mixed >> np.uint64(11)).min(axis=0)
            out[i] = (least % np.uint64(83) * np.uint64(3) + np.uint64(3)).astype(np.uint8)
    return out
