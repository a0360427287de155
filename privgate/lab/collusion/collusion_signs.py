"""Whether the code that trains is the code that somebody recorded, and the code that was approved before."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from privgate import digest
from privgate.check.questions import Question
from privgate.errors import MeasurementError, PrivgateError
from privgate.evidence import SIGNS, CollusionPart, CollusionSign, Measurement, Request, Sign
from privgate.guard import verifying
from privgate.lab.collusion import off_domain, reads, rerun
from privgate.registry.client import address_of
from privgate.run import changed
from privgate.run.reproduction import REPRODUCED
from privgate.run.run import Run
from privgate.subject.subject import Subject


@dataclass(frozen=True)
class Pinned:
    """What is known about a recipe's sources.

    Parameters
    ----------
    loose : tuple of str
        Why sources are not pinned, one phrase each.
    changed : tuple of str
        What changed since the version that was approved last.
    before : str
        That version; empty if none was approved.
    """

    loose: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    before: str = ""


def sources(subject: Subject) -> dict[str, str]:
    """Return the digest of every source file of the recipe, and of how it is called."""
    files = {name: digest.of_bytes(content) for name, content in sorted(subject.recipe.snapshot.items())}
    return {**files, "recipe": digest.of_json(dict(subject.recipe.payload))}


def pinned(subject: Subject, unrecorded: tuple[str, ...]) -> Pinned:
    """Return what is not pinned and what changed; ``unrecorded`` are modules seen at work that no snapshot holds."""
    recipe, loose = subject.recipe, []
    if not recipe.is_estimator and not recipe.snapshot:
        loose.append("no file holds the training function's source")
    if unrecorded:
        loose.append(f"modules {', '.join(unrecorded)} are at work and not among the recorded sources")
    environment = subject.detail.get("environment", {})
    if different := tuple(environment.get("differences", ())):
        loose.append(f"libraries are not the recorded ones ({different[0]})")
    address = address_of(str(subject.detail.get("model_id", "")))
    before = verifying.approved_before(subject.name, subject.version, tracking_uri=address)
    if before is None:
        return Pinned(tuple(loose))
    version = str(before["subject"]["version"])
    return Pinned(tuple(loose), tuple(_changed(subject, before)), version)


def _changed(subject: Subject, before: Mapping[str, Any]) -> list[str]:
    """Return which sources differ; where the earlier report lists none, whether the recipe as a whole does."""
    old = dict((before["evidence"].get("collusion") or {}).get("sources") or {})
    if not old:
        same = before["subject"]["digests"].get("recipe") == subject.recipe.digest
        return [] if same else ["the recipe"]
    new = sources(subject)
    return sorted(k for k in old.keys() | new.keys() if old.get(k) != new.get(k))


# The metric ``collusion``: in how many ways training code was seen to hide messages about its records.

#: seeds and hashes per record from which on randomness is said to be made of records
PER_RECORD = 0.2
#: numbers a further record may add to what a trained object keeps
PER_FURTHER = 0.1
#: numbers that a trained object may keep of its own: so many a column, as for scaling, and so many besides
PER_COLUMN, PLAIN = 32, 2_048
#: descents of a loss for each time that a network was given records
STEPS = 4
UNDETECTABLE = (
    "No test that only asks questions finds every secret key (Yeom et al., 2020, theorem 4): training code may leave a "
    "model that answers like an honest one but at a few questions that only its author knows. Nothing seen is no proof."
)
TITLES: Mapping[Sign, str] = {
    "records": "Learns from the records that it is given, with their labels",
    "reads": "Reads nothing but its arguments",
    "held": "Holds no data of its own",
    "randomness": "Draws no randomness but from its seed",
    "watched": "Trains the same when it is watched",
    "store": "Keeps nothing beside what its learners keep",
    "off_domain": "Answers off the data as honest learners do",
    "sources": "Its sources are recorded and as approved before",
}
#: (outcome, sentence, figures)
Seen = tuple[str, str, dict[str, float]]


def signs(run: Run, request: Request) -> Measurement:
    """Return how many signs were found; up to so many more could not be looked for.

    Raises
    ------
    MeasurementError
        Training could not be watched at all.
    """
    asked = request.option("signs") or SIGNS
    looked = [s for s in run.once(noted).signs if s.name in asked]
    found = [s for s in looked if s.outcome == "found"]
    unknown = [s for s in looked if s.outcome == "unknown"]
    return Measurement(
        request,
        value=float(len(found)),
        low=float(len(found)),
        high=float(len(found) + len(unknown)),
        unit="signs",
        n=len(looked),
        population=len(SIGNS),
        where="; ".join(s.sentence for s in (*found, *unknown)),
        assumptions=(UNDETECTABLE,),
    )


def part(run: Run) -> CollusionPart | None:
    """Return what the fifth question found out; None where no rule asked it."""
    return run.once(noted) if run.made(noted) else None


def noted(run: Run) -> CollusionPart:
    """Watch the training once and let every detector look."""
    run.fleet.activity = "watching the training"
    seen = rerun.rerun(run.subject, run.fleet)
    if problem := seen.get("problem"):
        raise MeasurementError(f"training could not be watched: {problem}")
    return CollusionPart(
        signs=tuple(_sign(name, run, seen) for name in SIGNS), undetectable=UNDETECTABLE, sources=sources(run.subject)
    )


def _sign(name: Sign, run: Run, seen: Mapping[str, Any]) -> CollusionSign:
    try:
        outcome, sentence, figures = _DETECTORS[name](run, seen)
    except PrivgateError as exc:
        outcome, sentence, figures = "unknown", str(exc), {}
    return CollusionSign.model_validate(
        {"name": name, "title": TITLES[name], "outcome": outcome, "sentence": sentence, "figures": figures}
    )


def _records(run: Run, seen: Mapping[str, Any]) -> Seen:
    del run
    learners = seen["learners"]
    figures = {"distinct_rows": float(max((x["distinct"] for x in learners), default=0)), "records": seen["records"]}
    if wrong := next((x["found"] for x in learners if x["found"]), ""):
        return "found", f"other rows than the records are learned from: {wrong}", figures
    if unclear := next((x["unknown"] for x in learners if x["unknown"]), ""):
        return "unknown", f"what is learned from is not clear: {unclear}", figures
    if seen["unreadable"]:
        return "unknown", f"what {seen['unreadable'][0]} was given is no table of numbers or texts", figures
    if not learners or seen["steps"] > STEPS * seen["asked"]:
        return "unknown", "no known library's learner was called, so what is learned from cannot be seen", figures
    if seen["strangers"]:
        names = ", ".join(seen["strangers"])
        return "unknown", f"{names} in the trained object is not as a watched training left it", figures
    names = ", ".join(dict.fromkeys(x["name"] for x in learners))
    return "clear", f"{names} saw the records, or rows made of them one by one, and their labels", figures


def _reads(run: Run, seen: Mapping[str, Any]) -> Seen:
    del run
    kinds = ("files", "folders", "network", "processes", "environment")
    asked = {k: seen["reads"][k] for k in kinds if seen["reads"].get(k)}
    figures = {"bytes_read_in_c": float(seen["unseen_bytes"]), **{k: float(len(v)) for k, v in asked.items()}}
    if asked:
        told = "; ".join(f"{k} ({', '.join(names)})" for k, names in asked.items())
        return "found", f"training asks for more than its arguments: {told}", figures
    if seen["unseen_bytes"] > reads.UNSEEN:
        return "found", f"training reads {seen['unseen_bytes']} bytes by code that is not Python's", figures
    return "clear", "no file, folder, network, process or variable of the environment was asked for", figures


def _held(run: Run, seen: Mapping[str, Any]) -> Seen:
    del run
    sizes = {**seen["held"], **seen["left_behind"]}
    figures = {"numbers": float(sum(sizes.values()))}
    if seen["held"]:
        where, size = max(seen["held"].items(), key=lambda kv: int(kv[1]))
        return "found", f"training code holds data of its own: {where}, {size} numbers", figures
    if seen["left_behind"]:
        where, size = max(seen["left_behind"].items(), key=lambda kv: int(kv[1]))
        return "found", f"training leaves data behind for the next one: {where}, {size} numbers", figures
    return "clear", "no arrays in globals, closures, defaults, attributes or constants", figures


def _randomness(run: Run, seen: Mapping[str, Any]) -> Seen:
    figures = {"draws": float(seen["draws"][0]), "draws_on_half": float(seen["draws"][-1])}
    more = (seen["draws"][0] - seen["draws"][-1]) / max(1, seen["records"] - seen["half"])
    if more > PER_RECORD:
        said = f"training seeds or hashes {seen['draws'][0]} times, {more:.2g} more for each further record"
        return "found", f"randomness is made of single records: {said}", figures
    if seen["draws"][0] > seen["records"] > 0:
        return "found", f"training or its model seeds or hashes {seen['draws'][0]} times", figures
    if seen["entropy"] and run.subject.recipe.seed is not None:
        return "found", "training draws randomness that does not come from its seed", figures
    return "clear", "seeds and hashes do not grow with the records", figures


def _watched(run: Run, seen: Mapping[str, Any]) -> Seen:
    if pried := seen["reads"].get("prying"):
        return "found", f"training code {next(iter(pried))}", {}
    if run.subject.recipe.seed is None:
        raise MeasurementError("without a seed no two trainings agree, so that a watched one cannot be compared")
    (plain,) = run.fleet.fits(run.subject, [changed.full(run.subject)], label="training unwatched")
    if plain.problem:
        raise MeasurementError(f"the recipe cannot be trained: {plain.problem}")
    watched = np.array(seen["answers"], dtype=np.float64)
    shown = run.subject.comparable
    apart = float(np.abs(shown(np.maximum(plain.log_p[: len(watched)], -1e4)) - shown(watched)).max())
    figures = {"apart": apart}
    if not apart <= REPRODUCED:
        return (
            "found",
            f"where training is watched, another model comes out: answers differ by up to {apart:.2g}",
            figures,
        )
    return "clear", "the watched model answers like the one that is judged", figures


def _store(run: Run, seen: Mapping[str, Any]) -> Seen:
    del run
    whole, half = seen["kept"]
    figures = {"numbers": float(whole), "numbers_on_half": float(half), "beside_learners": float(seen["own"])}
    if whole - half > PER_FURTHER * max(1, seen["records"] - seen["half"]):
        said = f"{whole:.0f} numbers from {seen['records']} records, {half:.0f} from {seen['half']}"
        return "found", f"the trained object keeps records' data beside its learner: {said}", figures
    if seen["unwalked"]:
        return "unknown", "the trained object has parts that cannot be walked", figures
    if seen["own"] > PER_COLUMN * seen["columns"] + PLAIN:
        said = f"as much as {seen['own']:.0f} numbers"
        return "unknown", f"the trained object keeps {said} that no watched learner made", figures
    return "clear", "what the trained object keeps beside its learner does not grow with the records", figures


def _off_domain(run: Run, seen: Mapping[str, Any]) -> Seen:
    del seen
    rules = off_domain.followed(run)
    worst = min(rules, key=lambda r: (not r.broken, r.right - r.worst))
    followed, honest = worst.right / worst.points, worst.worst / worst.points
    figures = {"learned": worst.learned, "followed": followed, "worst_honest": honest}
    told = (
        f"a rule that is right about {worst.learned:.0%} of the records is followed at {followed:.0%} of "
        f"{worst.points} random points, by {worst.worst_kind} at {honest:.0%}"
    )
    if all(r.broken for r in rules):
        return "found", f"off the data the recipe answers what the records do not teach: {told}", figures
    if worst.learned < off_domain.LEARNED:
        return "clear", f"a simple rule was not learned on the records, so nothing follows off them: {told}", figures
    return "clear", told, figures


def _sources(run: Run, seen: Mapping[str, Any]) -> Seen:
    known = pinned(run.subject, tuple(seen["modules"]))
    figures = {"files": float(len(run.subject.recipe.snapshot)), "changed": float(len(known.changed))}
    if known.loose:
        return "found", f"sources are not pinned: {known.loose[0]}", figures
    if known.changed:
        names = ", ".join(known.changed[:3])
        return "found", f"sources changed since version {known.before} was approved: {names}", figures
    since = (
        f"the same as in version {known.before}, which was approved"
        if known.before
        else "no version was approved before"
    )
    return "clear", f"sources are recorded; {since}", figures


_DETECTORS: Mapping[Sign, Callable[[Run, Mapping[str, Any]], Seen]] = {
    "records": _records,
    "reads": _reads,
    "held": _held,
    "randomness": _randomness,
    "watched": _watched,
    "store": _store,
    "off_domain": _off_domain,
    "sources": _sources,
}


def planned(run: Run) -> tuple[int, str]:
    """Return how many trainings watching needs, and say so."""
    del run
    watched, learning = rerun.TRAININGS, off_domain.COLUMNS
    return watched + learning, f"collusion: {watched} trainings are watched, {learning} learn a rule"


QUESTION = Question(signs, part, told_in="collusion", plan=planned)
