"""What code in a box may take; set before any of it is loaded, and it cannot be raised again."""

import ctypes
import os
import resource
from pathlib import Path

from privgate.training.box import syscalls
from privgate.training.box.bubblewrap import NOBODY, SCRATCH
from privgate.training.limits import limit_memory

#: processes and threads; the kernel counts those of all boxes of one user together where it does not know better
PROCESSES = 1024
_SET_DUMPABLE = 4


def confine(memory: int, *, network: bool = False) -> None:
    """Limit this process and all that it will start, and become nobody where that is still to be done.

    Parameters
    ----------
    memory : int
        Bytes of private memory of one process; 0 for no limit.
    network : bool
        Whether this box shares the host's network.
    """
    Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")  # the box goes first, not its parent
    _become_nobody()
    limit_memory(memory)
    for kind, most in (
        (resource.RLIMIT_NPROC, PROCESSES),
        (resource.RLIMIT_FSIZE, SCRATCH),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_DATA, resource.getrlimit(resource.RLIMIT_DATA)[0]),
    ):
        hard = resource.getrlimit(kind)[1]
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (bound, bound))
    syscalls.refuse(network=network)


def _become_nobody() -> None:
    """Give up root for good; with it go all capabilities."""
    if os.getuid() == NOBODY:
        return
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    # a process that changed its user may not read its own /proc/self, which libraries do
    ctypes.CDLL(None).prctl(_SET_DUMPABLE, 1, 0, 0, 0)
