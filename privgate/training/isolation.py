"""What stands between training code and the host, a box or nothing."""

from privgate.errors import UsageError
from privgate.training.sandbox import bubblewrap

#: training code runs as the user who checks
NONE = "none"
#: what is said of a box whose code shares the host's network, because its recipe declares that it needs it
NETWORKED = "with network"
WAYS = ("auto", "bubblewrap", NONE)
#: a box without the network, though the recipe declares that it needs it: a word of the command line
OFFLINE = "offline"


def missing() -> str:
    """Return why no box can be made here; empty if one can."""
    return bubblewrap.find_bubblewrap().why


def why(wanted: str, *, cluster: bool = False) -> str:
    """Return why there is no box, one sentence without a capital."""
    if cluster:
        return "workers of a cluster run as whoever started them"
    return "as asked for" if wanted == NONE else bubblewrap.find_bubblewrap().why or "bubblewrap is there"


def choose_isolation(wanted: str, *, cluster: bool = False) -> str:
    """Return the isolation that a setting gives here: ``bubblewrap`` and its version, or ``none``.

    ``UsageError``: no such setting, or a demanded box cannot be made.
    """
    if wanted not in WAYS:
        raise UsageError(f"no isolation {wanted!r}; it is {', '.join(WAYS)}")
    if cluster and wanted == "bubblewrap":
        raise UsageError("workers of a cluster are not boxed; leave out the cluster, or say isolation none")
    if cluster or wanted == NONE:
        return NONE
    program = bubblewrap.find_bubblewrap()
    if program.version:
        return f"bubblewrap {program.version}"
    if wanted == "bubblewrap":
        raise UsageError(f"{program.why}; mend that, or say isolation none")
    return NONE
