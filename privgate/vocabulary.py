"""The words of privgate: what people read everywhere, and what those words are not called.

``docs/reference.md`` is this table; ``tests/docs/test_words.py`` holds pages, messages and reports against it.
"""

from typing import NamedTuple


class Word(NamedTuple):
    """One word, what it means, and what we do not call it."""

    name: str
    meaning: str
    instead_of: tuple[str, ...] = ()


#: how a rule, a question and a check end, and what they are about
WORDS = (
    Word("approved", "Every figure that counts is within its limit, with its doubt.", ("passed", "met", "OK")),
    Word("refused", "Some figure is beyond its limit, also with its doubt.", ("blocked", "failed", "broken")),
    Word(
        "undecided",
        "The evidence decides neither way. Nothing is released on it, and it is no proof of a leak.",
        ("inconclusive", "open", "not decided"),
    ),
    Word("person", "All records of one human being in the training data.", ("unit", "individual", "data subject")),
    Word("record", "One row of the training data.", ("sample", "example", "data point")),
    Word(
        "candidate",
        "A person outside the training data, of the same population, to compare with.",
        ("others", "people outside", "non-member", "people to compare with"),
    ),
    Word("trial", "One guess of an attack about one record: in the training data or not.", ("attempt", "query")),
    Word(
        "certificate",
        "An upper limit that a theorem proves for this model and data. Its conditions were checked.",
        ("proof", "bound by proof", "guarantee by theorem"),
    ),
    Word("limit", "What the policy allows.", ("threshold", "bound of the policy", "ceiling")),
    Word("margin", "How far a figure is from its limit, as a share of it; of attacks, above guessing.", ("slack",)),
    Word("condition", "What must hold before any figure counts.", ("precondition", "prerequisite")),
    Word(
        "influence",
        "How much an answer changes if one person is left out of training. DTP and PDTP measure it.",
        ("effect of a person", "sensitivity of an answer"),
    ),
)
#: terms of the field that reports use
TERMS = (
    Word("member", "A person whose record is in the training data."),
    Word("membership inference", "Guessing whether one person's record was used in training."),
    Word("attack accuracy", "How often such guesses are right. Tossing a coin reaches 50 %."),
    Word("attack advantage", "How much oftener an attack flags members than candidates. Guessing reaches 0."),
    Word(
        "true-positive rate at 0.1 % false positives",
        "How many members are found when 1 in 1,000 accusations of candidates is wrong.",
    ),
    Word("shadow model", "A model trained like the judged one on other people, to learn how members look."),
    Word(
        "PDTP",
        "Pointwise differential training privacy: how much the answer about a person changes without that person. "
        "It speaks of direct queries only.",
    ),
    Word(
        "DTP",
        "Differential training privacy: the same, over any question that may be asked. It stops no attack by itself: "
        "dividing all scores by a temperature lowers DTP and leaves every attack as it was.",
    ),
    Word(
        "nats",
        "The unit of PDTP, DTP and epsilon. 0 is no change. At 1 an answer's probability changes at most 2.7-fold, "
        "at 2 at most 7.4-fold.",
    ),
    Word("noise floor", "The change between trainings with nobody left out. Smaller changes cannot be told apart."),
    Word("epsilon", "How much one person's data can shift the odds, at most, under differential privacy."),
    Word("delta", "The probability with which that promise may not hold."),
    Word("deletion capacity", "How many people can be erased before a full retraining is due."),
    Word("interval", "The range in which the true figure lies, with certainty or at the confidence stated."),
    Word("engine", "A way to get the model without a person that is faster than training again."),
    Word("refit", "Training again without a person, with the user's own code."),
    Word(
        "keyed hash",
        "A code in place of a person's or record's name. Only the holder of the key can find the record again.",
    ),
    Word("waiver", "A dated exception to one rule, with a reason, a ceiling, and an approver who did not ask for it."),
    Word("policy", "The file of rules by which a model is judged."),
    Word("rule", "One line of a policy: what is measured and what is allowed."),
    Word("statement", "The signed document that says what was judged and how it ended."),
)
#: in reports on regressors only
SENSITIVITY = Word(
    "Sensitivity",
    "How far a regressor's answer moves without one person, as a share of its usual error on other people. It is not "
    "DTP and stops no attack by itself.",
)


def table() -> str:
    """Return the words as a table in Markdown, as docs/reference.md holds it."""
    rows = [f"| **{w.name}** | {w.meaning} | {', '.join(w.instead_of)} |" for w in WORDS]
    more = [f"| {w.name} | {w.meaning} |" for w in (*TERMS, SENSITIVITY)]
    first = ["| word | meaning | we do not say |", "| --- | --- | --- |", *rows]
    return "\n".join([*first, "", "| term of the field | meaning |", "| --- | --- |", *more]) + "\n"


def span(seconds: float) -> str:
    """Return a duration with its unit."""
    if seconds < 90:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
