"""Statements that no question about training data applies to a model: an agent, a prompt, a model from a catalogue.

Somebody says so, by name and with a reason, and signs with a key of that role. The file is looked at all the same. A
guard takes such a statement only where its table says of the model that it is "not applicable".
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any

from privgate import digest
from privgate.documents import strict_json
from privgate.errors import StatementError
from privgate.guard import statement
from privgate.guard.checks import Signer, row_of
from privgate.guard.signer import seal
from privgate.guard.signing import Signed, check_target, versions_of
from privgate.guard.statement import NOT_APPLICABLE, Claims
from privgate.policy import Policy
from privgate.registry import layout
from privgate.registry.client import connect
from privgate.registry.named import named
from privgate.registry.stored_files import FolderFiles, stored_files
from privgate.version import __version__

SCHEMA = "privgate/not-applicable/v1"
#: seconds in which the files have to be read
SECONDS = 300.0
#: letters of a reason that says something
LEAST = 20


def sign(
    uri: str,
    signer: Signer,
    *,
    reason: str,
    by: str,
    policy: Policy,
    registry: str,
    targets: Sequence[tuple[str, str]] = (),
    tracking_uri: str | None = None,
) -> Signed:
    """Return signed statements that a version holds no training data of its owner's.

    Parameters
    ----------
    uri : str
        ``models:/name/version``.
    signer : Signer
        Whose key signs; the guard asks for its role ``not_applicable``.
    reason, by : str
        Why, and who says so.
    policy : Policy
        One with ``not_applicable: true``.
    registry : str
        Configured id of the registry.
    targets : sequence of (model, alias or stage)
        ``production`` of its own model if empty.
    tracking_uri : str, optional

    Raises
    ------
    StatementError
        The policy does not allow it, nobody says why, the version has a recipe, or its file keeps records.
    """
    if not policy.not_applicable:
        raise StatementError(f"policy {policy.name!r} lets nobody state that it does not apply: not_applicable: true")
    if len(reason.strip()) < LEAST or not by.strip() or not (reason + by).isprintable():
        raise StatementError("say why in a sentence (--reason) and who says so (--by)")
    client = connect(tracking_uri)
    found = named(client, uri)
    if not found.version:
        raise StatementError(f"{uri} is no registered version; statements are about versions")
    row = row_of(client, found.name, found.version)
    exact = f"models:/{found.name}/{found.version}"
    with stored_files(client, row.storage) as stored, tempfile.TemporaryDirectory(prefix="privgate-") as place:
        table = stored.digests(((found.name, found.version),))
        if layout.RECIPE in table:
            raise StatementError(f"{exact} records how it was trained: check it, and sign the report")
        stored.copy_to(Path(place))
        if FolderFiles(Path(place)).digests() != table:
            raise StatementError(f"the files of {exact} changed while they were read; sign again")
        seen = looked(Path(place))
    if seen["stores"]:
        raise StatementError(
            f"the file of {exact} keeps records ({', '.join(seen['stores'][:3])}): whether they are people's is a "
            "question that applies"
        )
    targets = tuple(targets) or ((found.name, "production"),)
    for model, target in targets:
        check_target(model, target)
        if refusal := policy.refusal(model, target):
            raise StatementError(refusal)
    moment = statement.now().replace(microsecond=0)
    document = {
        "schema": SCHEMA,
        "model": exact,
        "reason": reason.strip(),
        "by": by.strip(),
        "decided_at": statement.stamp(moment),
        "files": digest.of_manifest(table),
        "file": seen,
        "findings": [
            {"rule": "not_applicable", "outcome": "passed", "message": f"{by.strip()}: {reason.strip()}", "waiver": ""}
        ],
    }
    content = json.dumps(document, indent=1, sort_keys=True).encode()
    claims = Claims(
        registry=registry,
        name=found.name,
        version=found.version,
        source=row.source,
        storage=row.storage,
        model_id=found.model_id,
        run_id=row.run_id,
        created=row.created,
        files=digest.of_manifest(table),
        versions=versions_of(client, found.name),
        digests={},
        policy=policy.name,
        policy_digest=policy.digest,
        report=statement.payload_digest(content),
        evidence="",
        outcome="passed",
        passed=True,
        decided=moment,
        signed=moment,
        expires=_end(moment, policy.valid_days),
        targets=targets,
        levels=("PRIVGATE_NOT_APPLICABLE",),
        advisory=False,  # nothing ran that could have signed
        recomputed=("files",),
        task=NOT_APPLICABLE,
        workspace=row.workspace,
    )
    evidence = seal(claims.evidence_statement(document, table), signer)
    full = replace(claims, evidence=statement.payload_digest(evidence.payload))
    return Signed(full, evidence, seal(full.summary(__version__), signer), content)


def looked(folder: Path) -> dict[str, Any]:
    """Return what the files hold, read as bytes by a process of its own; see ``artifact.stores``.

    Raises
    ------
    StatementError
        They could not be read in time, or at all.
    """
    command = [sys.executable, "-I", "-m", "privgate.artifact.stores", str(folder)]
    try:
        ran = subprocess.run(command, capture_output=True, timeout=SECONDS, check=True)  # noqa: S603  our own module
        found = strict_json.loads(ran.stdout)
        return {k: found[k] for k in ("stores", "numbers", "texts", "unread")}
    except (subprocess.SubprocessError, OSError, *strict_json.GARBLED) as exc:
        raise StatementError(f"the model's files could not be looked at ({type(exc).__name__})") from exc


def _end(moment: datetime, days: int) -> datetime:
    return datetime.combine(moment.date() + timedelta(days=days), time(23, 59, 59), moment.tzinfo)
