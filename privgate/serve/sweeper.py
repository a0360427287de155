"""Does everything that is released still verify: what went around the gate, and what changed behind it."""

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privgate.errors import PrivgateError
from privgate.guard.audit_log import AuditLog
from privgate.guard.config import Guard
from privgate.guard.doctor import released
from privgate.guard.verifying import verify

logger = logging.getLogger(__name__)


@dataclass
class Swept:
    """What the last sweep found: -1 before the first, and where it could not be completed."""

    released: int = -1
    wrong: int = -1
    when: float = 0.0
    #: what did not verify then
    told: frozenset[str] = frozenset()


def sweep(client: Any, config: Path, into: Swept, audit: AuditLog | None = None) -> list[str]:
    """Verify statement and files of everything released, and return one sentence for each that does not verify.

    The audit log gets each sentence when it is new.

    Raises
    ------
    PrivgateError
        The registry cannot be listed or the configuration cannot be used; nothing is known then.
    """
    into.released = into.wrong = -1
    guard = Guard.load(config)
    wrong, seen = [], 0
    for uri, target in dict.fromkeys(released(client, guard)):
        seen += 1
        try:
            verify(uri, guard, target=target or None, tracking_uri=str(client.tracking_uri))
        except PrivgateError as exc:
            wrong.append(f"{uri}{f' as {target!r}' if target else ''} is released but does not verify: {exc}")
            logger.warning("%s", wrong[-1])
            if audit is not None and wrong[-1] not in into.told:
                audit.record("wrong", doing="sweep", model=uri, target=target, why=str(exc))
    into.released, into.wrong, into.when, into.told = seen, len(wrong), time.time(), frozenset(wrong)
    return wrong
