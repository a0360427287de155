"""The glossary."""

from privgate.report.blocks import Section, TableBlock
from privgate.report.report_schema import ReportDocument

GLOSSARY: tuple[tuple[str, str], ...] = (
    ("Membership inference", "Guessing whether one person's record was used in training."),
    ("Attack accuracy", "How often such guesses are right; 50 % is what tossing a coin achieves."),
    (
        "True-positive rate at 0.1 % false positives",
        "How many people in the data are found when 1 in 1,000 accusations of people outside it is wrong.",
    ),
    (
        "PDTP",
        (
            "Pointwise differential training privacy: how much the model's answer about a person changes if that "
            "person is left out of training. Speaks of direct queries only."
        ),
    ),
    (
        "DTP",
        (
            "Differential training privacy: the same, over any question that may be asked of the model. It limits how "
            "far answers move and stops no attack by itself: dividing all scores by a temperature, or clipping one "
            "model, lowers DTP and leaves every attack as it was."
        ),
    ),
    (
        "nats",
        (
            "The unit of PDTP, DTP and epsilon. 0 is no change; at 1 an answer's probability changes at most "
            "2.7-fold, 2 means 7.4-fold."
        ),
    ),
    ("Noise floor", "Change seen between trainings with nobody removed. Smaller changes cannot be told apart."),
    (
        "Epsilon",
        "Upper limit on how much one person's data can shift the odds, for training with differential privacy.",
    ),
    (
        "Certificate",
        "An upper limit that follows from a mathematical theorem whose conditions were checked on this model and data.",
    ),
    (
        "Deletion capacity",
        "How many people, each used with the chance named, can be erased before a full retraining is due.",
    ),
    ("Interval", "The range in which the true figure lies, with certainty or at the confidence stated."),
    ("Inconclusive", "Not enough evidence to decide, so treated as not passed."),
    (
        "Keyed hash",
        (
            "A code in place of a person's or record's name. Only the holder of the key, the controller, can find the "
            "record again."
        ),
    ),
    ("Waiver", "A dated exception to one rule, with a reason, a ceiling, and an approver other than the requester."),
)

#: in reports on regressors only
SENSITIVITY = (
    "Sensitivity",
    (
        "How far a regressor's answer moves if one person is left out of training, as a share of what the model "
        "usually misses strangers by. It is not DTP and stops no attack by itself."
    ),
)


def section(doc: ReportDocument) -> Section:
    """Return the words of this report in plain language."""
    words = (*GLOSSARY, SENSITIVITY) if doc.subject.task == "regression" else GLOSSARY
    table = TableBlock("Words of this report", ("Word", "Meaning"), words, folded=f"{len(words)} words of this report")
    return Section("glossary", "Glossary", [table])
