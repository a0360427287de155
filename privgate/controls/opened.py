"""The check for files that training opens beside its data: whoever is in such a file was never left out."""

from typing import Any

import numpy as np

from privgate.evidence import Precondition
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

#: files that a sentence names
_NAMED = 3


def train_and_list(opened: Any) -> dict[str, Any]:
    """Train on everybody in a worker, and return the files that training opened beside the data, as JSON values."""
    from privgate.subject.containers import take
    from privgate.training.task_limits import list_opened, watch_files

    watch_files()
    everybody = np.arange(opened.n, dtype=np.int64)
    opened.recipe.train(take(opened.X, everybody), np.array(opened.y[: opened.n]), seed=opened.recipe.seed)
    # the fleet's own folder holds other payloads of this check
    spool = next((p for p in opened.root.parents if p.name.startswith("privgate-")), opened.root)
    return {"files": list_opened(str(spool), str(opened.root))}


def check_opened_files(subject: Subject, fleet: Fleet) -> Precondition | None:
    """Check that training opens only what ``Recipe(public=…)`` declares; a library's estimator opens nothing."""
    name = "opened_files"
    if subject.recipe.is_estimator and subject.recipe.library_estimator is not None:
        return None
    answer = fleet.examined(subject, "privgate.controls.opened:train_and_list")
    if "problem" in answer:
        return Precondition(name, "inconclusive", f"which files training opens was not seen: {answer['problem']}")
    public = tuple(f"/{key.lstrip('./')}" for key in subject.recipe.payload.get("public", {}))
    files = ["".join(c for c in str(f) if c.isprintable()) for f in answer["files"]]
    undeclared = [f for f in files if not f.endswith(public)]
    if not undeclared:
        return Precondition(name, "passed", f"training opens beside its data: {', '.join(files[:_NAMED]) or 'no file'}")
    text = (
        f"training opens {', '.join(undeclared[:_NAMED])}, which is no part of its data: nobody in it was left out; "
        f"pass it as data, or say of whom and by whom it was made: Recipe(public={{{undeclared[0]!r}: '…'}})"
    )
    return Precondition(name, "inconclusive", text)
