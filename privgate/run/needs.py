"""What a metric needs of a run: a metric says so once, and plan, measurements and judge ask for it by this name."""

from enum import StrEnum


class Need(StrEnum):
    """One thing that a number rests on; a run makes what some rule of its policy needs, and nothing else."""

    #: the per-person table
    LEAVE_ONE_OUT = "leave_one_out"
    #: beyond direct queries: theorems, and a search for questions that tell more
    EVERY_QUERY = "every_query"
    #: models on random subsets
    SHADOWS = "shadows"
    #: people who were not trained on
    CANDIDATES = "candidates"
    #: a stated claim of differential privacy
    CLAIM = "claim"
    #: reruns of the recipe that are watched
    RERUNS = "reruns"
    #: the model's files, read as bytes
    LOOKED = "looked"
    #: many trainings with and without canaries
    AUDIT = "audit"
