"""What was measured: requests, measurements, the per-person table, and one part a question beside the run."""

from privgate.evidence.facts import *  # noqa: F403  the package hands on what its files define
from privgate.evidence.measurement import *  # noqa: F403  the same
from privgate.evidence.telling import *  # noqa: F403  the same
