"""What the registry keeps of a release: the row, the statement in its tag, report and evidence with the model's run.

Apart from signing, which needs policies: who only verifies reads these.
"""

import re
from typing import Any

from privgate.errors import StatementError, SubjectError
from privgate.guard import dsse
from privgate.guard.checks import Row
from privgate.guard.dsse import Envelope
from privgate.registry import report_place
from privgate.registry.client import answering
from privgate.registry.stored_files import stored_files

TAG = "privgate.statement"
EVIDENCE_FILE = "evidence.dsse.json"
_EVIDENCE = re.compile(f"[^/]+/signed/[^/]+/{re.escape(EVIDENCE_FILE)}")


def row_of(client: Any, name: str, version: str) -> Row:
    """Return the registry's row of a model version."""
    return row_and_statement(client, name, version)[0]


def row_and_statement(client: Any, name: str, version: str) -> tuple[Row, str]:
    """Return a row and the statement that it carries, read at once; the statement is empty where there is none."""
    with answering(f"reading models:/{name}/{version}"):
        held = client.get_model_version(name, version)
        storage = str(client.get_model_version_download_uri(name, version))
    row = Row(name, str(held.version), str(held.source), storage, int(held.creation_timestamp), str(held.run_id or ""))
    return row, str(dict(held.tags).get(TAG, ""))


def stored_evidence(client: Any, model_id: str, wanted: str) -> tuple[bytes, Envelope]:
    """Return report and evidence envelope, stored with the run of a model, whose payload has the wanted digest.

    Raises
    ------
    StatementError
        There is none.
    """
    gone = (
        f"the evidence behind the statement ({wanted[:19]}…) is not stored with the model's run; check and sign again"
    )
    try:
        place = report_place.location_of(client, model_id)
    except SubjectError as exc:
        raise StatementError(gone) from exc
    with stored_files(client, place) as files:
        stored = files.names()
        for path in (p for p in stored if _EVIDENCE.fullmatch(p)):
            report = path.removesuffix(EVIDENCE_FILE) + "report.json"
            envelope = Envelope.parse(files.read(path).decode(errors="replace"))
            if dsse.payload_digest(envelope.payload) == wanted and report in stored:
                return files.read(report), envelope
    raise StatementError(gone)
