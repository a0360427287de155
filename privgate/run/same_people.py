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

from privgate.arrays import Bool, Index
from privgate.evidence import Count
from privgate.evidence.telling import share
from privgate.subject.containers import as_numbers, length
from privgate.subject.data import TrainingData

Code = NDArray[np.uint8]

#: columns (or hashes of a text or a sparse record) that are compared
WIDTH = 64
#: parts that a column of many values is cut into, equally full; neighbours count as equal
PARTS = 64
#: a twin agrees in at least this share of the columns
ALIKE = 0.6
#: comparisons (pairs of records times columns) a check may cost; beyond, a random sample of either side is looked at
MOST_COMPARISONS = 1_500_000_000
#: probability that an honest split is called too alike
LEVEL = 1e-4
#: the same before members are counted as found for having a twin: an error costs less, and there copies are few
CHARGED = 1e-2
#: candidates with a twin beyond what chance explains: from this share on, no attack is judged
MOST_TWINS = 0.05
#: records may be left out of the trials on account of a twin if distinct members have one no oftener than this
RARE = 0.002


@dataclass(frozen=True, eq=False)
class Twins:
    """How many candidates agree with a member in nearly everything.

    Parameters
    ----------
    checked : int
        Candidates that were looked at.
    share, usual : float
        Share of them with a twin among the members, and share of members with one among members of other people, at
        the number of agreeing columns where the two differ most.
    excess : float
        ``(share - usual) / (1 - usual)``: candidates whose twin chance does not explain; 0 where it explains all.
    clear : bool
        The excess would be seen in an honest split with probability at most 1e-4.
    rows : int64 array
        Pool rows, candidates and members, that have a twin among the members, or are one, by a standard at which
        distinct members hardly ever have one; they are no trials. Empty where only a sample was looked at, or where
        twins are common.
    others : int
        Members who have a twin among the members by that standard.
    among : int
        Members looked at.
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
    def told(self) -> tuple[float, float]:
        """``share`` and ``usual`` as a report may say them: of a few people, the most that they could be."""
        return share(self.share, self.share, self.checked)[1], share(self.usual, self.usual, self.among)[1]

    @property
    def sentence(self) -> str:
        """What was found, in words from which no small count of people follows."""
        share, usual = map(_percent, self.told, (self.checked, self.among))
        said = f"{share} of the candidates that were compared are nearly equal to a training record"
        return f"{said}, where {usual} would be by chance"

    @property
    def too_many(self) -> bool:
        """Whether so many candidates are members in disguise that nobody can be told from anybody."""
        return self.clear and self.excess >= MOST_TWINS


def _percent(share: float, of: int) -> str:
    """Return a share in words; one that stands for every small count is an upper limit."""
    return f"{'up to ' if Count(round(share * of), of).hidden else ''}{share:.1%}"


def twins(data: TrainingData, trial: Bool) -> Twins | None:
    """Return how alike candidates and members are; None without candidates or where records cannot be compared.

    Parameters
    ----------
    data : TrainingData
    trial : bool array of shape (P,)
        Pool rows that serve as trials: no other person's row equals them exactly.

    Notes
    -----
    Labels are not compared. Candidates are independent draws given the members, under the null; members' best matches
    come in pairs, so that half of them are counted. One-sided Fisher test a threshold, corrected for the thresholds.
    """
    if min(int(trial[: data.n].sum()), int(trial[data.n :].sum())) < 2:
        return None
    codes = coded(data)
    if codes is None:
        return None
    n, size = data.n, len(codes)
    owner = np.concatenate([data.units.owner, np.full(size - n, -1)])
    rng = np.random.default_rng(17)
    outside, inside = n + np.flatnonzero(trial[n:]), np.flatnonzero(trial[:n])
    most = max(200, MOST_COMPARISONS // (2 * n * codes.shape[1]))
    whole = max(len(inside), len(outside)) <= most
    if not whole:
        outside, inside = (np.sort(rng.permutation(r)[:most]) for r in (outside, inside))
    c, nearest = best(codes, outside, owner, n)
    m, _ = best(codes, inside, owner, n)
    columns = codes.shape[1]
    levels = np.arange(columns, max(1, int(np.ceil(ALIKE * columns))) - 1, -1)
    found, rare = (1.0, 0.0, 0.0, 0.0), 0
    for k in levels:
        hits, other = int((c >= k).sum()), int((m >= k).sum())
        usual, share = other / len(m), hits / len(c)
        if usual <= RARE:
            rare = int(k)
        p = oftener(hits, len(c), other, len(m)) * len(levels)
        excess = max(0.0, (share - usual) / (1 - usual)) if usual < 1 else 0.0
        if p <= LEVEL and excess > found[1]:
            found = (p, excess, share, usual)
    alike = np.zeros(0, dtype=np.int64)
    if whole and rare:
        hit = c >= rare
        alike = np.unique(np.concatenate([outside[hit], nearest[hit], inside[m >= rare]])).astype(np.int64)
    p, excess, share, usual = found
    return Twins(len(c), share, usual, excess, p <= LEVEL, alike, int((m >= rare).sum()) if rare else 0, len(m))


def oftener(hits: int, among: int, usual: int, of: int) -> float:
    """Return P(at least ``hits`` of ``among`` candidates match) if members match one another as often.

    One-sided Fisher test; members' matches come in pairs, so that half of them are counted.
    """
    from scipy.stats import hypergeom

    half, pairs = -(-usual // 2), -(-of // 2)
    return float(hypergeom.sf(hits - 1, among + pairs, hits + half, among))


def best(codes: Code, rows: Index, owner: Index, n: int) -> tuple[Index, Index]:
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


def coded(data: TrainingData) -> Code | None:
    """Return every pool record as small numbers, shape (P, w): two are alike in a column if they differ by at most 1.

    A column of up to 64 values has a code a value, three apart; one of more values has its 64-quantiles; text and
    categories, without case and spaces, a hash. A sparse record or a text is told by 64 smallest hashes of its words.
    """
    if data.candidates is None:
        return None
    sides = (data.X, data.candidates[0])
    if hasattr(data.X, "tocsr"):
        # a hash of column numbers serves both sides, whatever dtype they have
        return np.concatenate([_sketches(_rows_of(X)) for X in sides])
    if hasattr(data.X, "columns"):
        if set(sides[0].columns) != set(sides[1].columns):
            return None
        sides = (sides[0], sides[1][list(sides[0].columns)])  # as the pool puts them together
        names = range(sides[0].shape[1])
        return _thinned([_column(*(X.iloc[:, j] for X in sides)) for j in names])
    if hasattr(data.X, "shape"):
        flat = [np.asarray(X).reshape(length(X), -1) for X in sides]
        if flat[0].shape[1] != flat[1].shape[1] or flat[0].shape[1] == 0:
            return None
        some = _spread(flat[0])
        return _thinned([_column(flat[0][:, j], flat[1][:, j]) for j in some])
    if all(isinstance(v, str) for X in sides for v in X):
        return np.concatenate([_sketches([_shingles(v) for v in X]) for X in sides])
    return None


def _rows_of(X: Any) -> list[Index]:
    csr = X.tocsr().copy()
    csr.sum_duplicates()
    csr.eliminate_zeros()
    return [csr.indices[a:b].astype(np.int64) for a, b in zip(csr.indptr[:-1], csr.indptr[1:], strict=True)]


def _spread(flat: NDArray[Any]) -> Index:
    """Return at most 8 x 64 columns of many, for wide arrays: the rest is not coded at all."""
    width = flat.shape[1]
    if width <= 8 * WIDTH:
        return np.arange(width)
    return np.sort(np.random.default_rng(11).permutation(width)[: 8 * WIDTH])


def _thinned(columns: list[Code]) -> Code:
    """Return at most 64 columns: the half that tells most, and others drawn by chance, none that is constant."""
    told = np.array([_entropy(c) for c in columns])
    some = np.flatnonzero(told > 0) if (told > 0).any() else np.arange(min(1, len(columns)))
    if len(some) > WIDTH:
        order = some[np.argsort(-told[some], kind="stable")]
        rest = np.random.default_rng(13).permutation(order[WIDTH // 2 :])[: WIDTH - WIDTH // 2]
        some = np.sort(np.concatenate([order[: WIDTH // 2], rest]))
    return np.stack([columns[int(j)] for j in some], axis=1)


def _entropy(codes: Code) -> float:
    share = np.bincount(codes, minlength=1) / len(codes)
    share = share[share > 0]
    return float(-(share * np.log(share)).sum())


def _column(one: Any, other: Any) -> Code:
    first, second = _numeric(one), _numeric(other)
    if first is None or second is None:
        return np.concatenate([_hashed([_plain(v) for v in side.tolist()]) for side in (one, other)])
    known = np.unique(first[np.isfinite(first)])
    if len(known) <= 1:
        edges, apart = known + 0.0, 3
    elif len(known) <= PARTS:
        edges, apart = (known[1:] + known[:-1]) / 2, 3
    else:
        values = np.sort(first[np.isfinite(first)])
        edges, apart = np.unique(values[np.arange(1, PARTS) * len(values) // PARTS]), 1
    codes = [np.searchsorted(edges, v) * apart for v in (first, second)]
    missing = 250
    return np.concatenate(
        [np.where(np.isfinite(v), c, missing).astype(np.uint8) for v, c in zip((first, second), codes, strict=True)]
    )


def _numeric(values: Any) -> NDArray[np.float64] | None:
    """Return a column as float64 if it holds numbers, also where they are kept as text; else None."""
    if (numbers := as_numbers(values)) is not None:
        return numbers
    if getattr(values.dtype, "kind", "O") not in "OUS":
        return None
    try:
        return np.array([np.nan if v is None else float(v) for v in values.tolist()], dtype=np.float64)
    except (TypeError, ValueError):
        return None


def _plain(value: Any) -> str:
    return re.sub(r"[\W_]+", " ", str(value)).strip().casefold()


def _hashed(values: list[str]) -> Code:
    from pandas.util import hash_array

    return np.asarray(hash_array(np.array(values, dtype=object)) % np.uint64(83) * np.uint64(3), dtype=np.uint8)


def _shingles(text: str) -> Index:
    """Return numbers of the words of a text, or of its pieces of four letters where it has few words."""
    from pandas.util import hash_array

    plain = _plain(text)
    words = plain.split()
    if len(words) < 8:
        words = [plain[i : i + 4] for i in range(max(1, len(plain) - 3))]
    return np.asarray(hash_array(np.array(sorted(set(words)), dtype=object)), dtype=np.uint64).view(np.int64)


def _sketches(rows: list[Index]) -> Code:
    """Return 64 smallest hashes a record (Broder, 1997): two agree in about the share of words they have in common."""
    rng = np.random.default_rng(19)
    odd = rng.integers(1 << 62, size=WIDTH, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    shift = rng.integers(1 << 62, size=WIDTH, dtype=np.uint64)
    out = np.zeros((len(rows), WIDTH), dtype=np.uint8)
    for i, row in enumerate(rows):
        if len(row):
            mixed = (row.view(np.uint64) if row.dtype == np.int64 else row)[:, None] * odd + shift
            mixed ^= mixed >> np.uint64(31)
            mixed *= np.uint64(0x9E3779B97F4A7C15)
            least = (mixed >> np.uint64(11)).min(axis=0)
            out[i] = (least % np.uint64(83) * np.uint64(3) + np.uint64(3)).astype(np.uint8)
    return out
