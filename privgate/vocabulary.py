"""The words of privgate, and what each means; ``docs/reference.md`` has them all as a table."""

#: name -> meaning: how a rule, a question and a check end, what they are about, and terms of the field that reports use
WORDS = {
    "approved": "Every figure that counts is within its limit, with its doubt.",
    "refused": "Some figure is beyond its limit, also with its doubt.",
    "undecided": "The evidence decides neither way. Nothing is released on it, and it is no proof of a leak.",
    "person": "All records of one human being in the training data.",
    "record": "One row of the training data.",
    "candidate": "A person outside the training data, of the same population, to compare with.",
    "trial": "One guess of an attack about one record: in the training data or not.",
    "certificate": "An upper limit that a theorem proves for this model and data. Its conditions were checked.",
    "limit": "What the policy allows.",
    "margin": "How far a figure is from its limit, as a share of it; of attacks, above guessing.",
    "condition": "What must hold before any figure counts.",
    "influence": "How much an answer changes if one person is left out of training. DTP and PDTP measure it.",
    "member": "A person whose record is in the training data.",
    "membership inference": "Guessing whether one person's record was used in training.",
    "attack accuracy": "How often such guesses are right. Tossing a coin reaches 50 %.",
    "attack advantage": "How much oftener an attack flags members than candidates. Guessing reaches 0.",
    "true-positive rate at 0.1 % false positives": (
        "How many members are found when 1 in 1,000 accusations of candidates is wrong."
    ),
    "shadow model": "A model trained like the judged one on other people, to learn how members look.",
    "PDTP": (
        "Pointwise differential training privacy: how much the answer about a person changes without that person. "
        "It speaks of direct queries only."
    ),
    "DTP": (
        "Differential training privacy: the same, over any question that may be asked. It stops no attack by "
        "itself: dividing all scores by a temperature lowers DTP and leaves every attack as it was."
    ),
    "nats": (
        "The unit of PDTP, DTP and epsilon. 0 is no change. At 1 an answer's probability changes at most 2.7-fold,"
        " at 2 at most 7.4-fold."
    ),
    "noise floor": "The change between trainings with nobody left out. Smaller changes cannot be told apart.",
    "epsilon": "How much one person's data can shift the odds, at most, under differential privacy.",
    "delta": "The probability with which that promise may not hold.",
    "deletion capacity": "How many people can be erased before a full retraining is due.",
    "interval": "The range in which the true figure lies, with certainty or at the confidence stated.",
    "engine": "A way to get the model without a person that is faster than training again.",
    "refit": "Training again without a person, with the user's own code.",
    "keyed hash": (
        "A code in place of a person's or record's name. Only the holder of the key can find the record again."
    ),
    "waiver": "A dated exception to one rule, with a reason, a ceiling, and an approver who did not ask for it.",
    "policy": "The file of rules by which a model is judged.",
    "rule": "One line of a policy: what is measured and what is allowed.",
    "statement": "The signed document that says what was judged and how it ended.",
}
#: in reports on regressors only
SENSITIVITY = {
    "Sensitivity": (
        "How far a regressor's answer moves without one person, as a share of its usual error on other people. It "
        "is not DTP and stops no attack by itself."
    )
}


def span(seconds: float) -> str:
    """Return a duration with its unit."""
    if seconds < 90:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
