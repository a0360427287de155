"""What a URI names: a logged model, the registered version whose files it is, and where reports about it lie."""

import re
import unicodedata
import urllib.parse
from dataclasses import dataclass
from typing import Any, Self

from privgate.errors import RegistryError, SubjectError
from privgate.registry.client import answering, connect
from privgate.registry.files import REPORTS, path_part


def oddity(name: str) -> str:
    """Return why a registered model of this name can be neither checked nor released; empty if it can."""
    if odd := re.search(r"[^\w.,()+=~&;{}^ -]", name):
        return f"its name holds {odd[0]!a}, which URIs, patterns or readers take for something else"
    if not name or name != name.strip() or name in {".", ".."} or unicodedata.normalize("NFKC", name) != name:
        return "its name is empty, a path, begins or ends with a space, or looks like another"
    return ""


def plain_name(name: str, what: str) -> str:
    """Return ``name`` if it means one thing to every reader; ``what`` begins the ``SubjectError``."""
    if problem := oddity(name):
        raise SubjectError(f"{what} can be neither checked nor released: {problem}; register it under a plain name")
    return name


# a run, or a model by its name in it
_RUN = re.compile(r"(?:runs:/)?([0-9a-f]{32})(?:/([^?#%]+))?/?")
# the folder of a logged model, as MLflow's tracking stores lay it out
_HOME = re.compile(r"/(m-[0-9a-f]{32})/artifacts$")
_AGAIN = "register the logged model itself again"


#: tag of a version that carries its statement
TAG = "privgate.statement"


@dataclass(frozen=True)
class Row:
    """A row of the registry, as the registry has it."""

    #: registered model and version; the version is empty for a row that is about to be created
    name: str
    version: str
    #: immutable source
    source: str
    #: where the files lie: what a consumer of the URI is given, and the only place that is ever read
    storage: str
    #: creation time, milliseconds; 0 for a row that is about to be created
    created: int = 0
    #: the row's run; empty where it has none
    run_id: str = ""

    @classmethod
    def read(cls, name: str, held: Any, storage: Any, created: Any) -> Self:
        """Return the row of MLflow's entity of a version."""
        return cls(name, str(held.version), str(held.source), str(storage), int(created), str(held.run_id or ""))


@dataclass(frozen=True)
class Named(Row):
    """What a URI names; name, version and source are empty if it names a logged model directly."""

    #: the logged model that holds the files
    model_id: str = ""
    #: that the version carries; empty if it has none
    statement: str = ""


def named(client: Any, uri: str) -> Named:
    """Return what ``uri`` names now; its forms are those of ``load_subject``.

    ``SubjectError``: another kind of URI, no such model of a run or several, a name that readers take for another, or
    a version whose files are not those of one logged model.
    """
    name, version = find_version(client, uri)
    if not version:
        return Named("", "", "", _location(client, name), model_id=name)
    plain_name(name, uri)
    with answering(f"reading {uri}"):
        held = client.get_model_version(name, version)
        storage = str(client.get_model_version_download_uri(name, version))
    row = Row.read(name, held, storage, held.creation_timestamp)
    model_id = _holder(client, uri, row.source, storage)
    return Named(**vars(row), model_id=model_id, statement=str(dict(held.tags).get(TAG, "")))


def find_version(client: Any, uri: str) -> tuple[str, str]:
    """Return (name, version), or (model id, "")."""
    if match := _RUN.fullmatch(uri):
        return _logged_in(client, match[1], match[2] or "", uri), ""
    parsed = urllib.parse.urlparse(uri, allow_fragments=False)
    path = parsed.path.strip("/")
    if parsed.scheme != "models" or parsed.netloc or parsed.query or not path or path.count("/") > 1:
        raise SubjectError(f"{uri!r} names no model; use models:/name/version, models:/name@alias or runs:/run/name")
    name, slash, suffix = path.partition("/")
    if slash:
        if not (suffix.isascii() and suffix.isdigit()):
            raise SubjectError(f"{uri!r} names a moving target; use a version number or an alias")
        return name, str(int(suffix))
    if "@" in name:
        name, _, alias = name.rpartition("@")
        with answering(f"reading {uri}"):
            return name, str(client.get_model_version_by_alias(name, alias).version)
    return name, ""


def _logged_in(client: Any, run_id: str, name: str, uri: str) -> str:
    """Return the id of the one logged model of a run, of this name if one is given."""
    if not hasattr(client, "search_logged_models"):  # the verifier's own client asks about versions only
        client = connect(client.tracking_uri)
    with answering(f"reading {uri}"):
        outputs = client.get_run(run_id).outputs
        ids = dict.fromkeys(o.model_id for o in (outputs.model_outputs if outputs else []))
        held = {i: str(client.get_logged_model(i).name) for i in ids}
    chosen = [i for i, own in held.items() if name in {"", own}]
    if len(chosen) == 1:
        return str(chosen[0])
    known = ", ".join(f"{own} (models:/{i})" for i, own in held.items()) or "no model of MLflow 3"
    raise SubjectError(
        f"{uri!r} names {len(chosen)} models of the run, which has logged {known}; name one of them, or register its "
        "files and run: privgate adopt models:/name/version --recipe module:recipe --data module:data"
    )


def _location(client: Any, model_id: str) -> str:
    with answering(f"reading {model_id}"):
        return str(client.get_logged_model(model_id).artifact_location)


def _holder(client: Any, uri: str, source: str, storage: str) -> str:
    """Return the id of the logged model whose folder is ``storage``.

    A source that is a name is never followed, since it may mean another version by now; it is compared where it exists.
    """
    name, slash, version = source.removeprefix("models:/").partition("/") if source.startswith("models:/") else [""] * 3
    home = _HOME.search(storage)
    if name and not slash:
        model_id = name
    elif home is not None:
        model_id = home[1]
    else:
        raise SubjectError(
            f"the files of {uri} lie at {storage!r}, no logged model of MLflow 3; make one of the same bytes: privgate "
            f"adopt {uri} --recipe module:recipe --data module:data"
        )
    serves = f"{uri} serves the files at {storage!r}, and its source {source!r}"
    if (location := _location(client, model_id)) != storage:
        raise SubjectError(f"{serves} has them at {location!r}; {_AGAIN}")
    if slash:
        try:
            with answering(f"reading models:/{name}/{version}"):
                location = str(client.get_model_version_download_uri(name, version))
        except RegistryError as exc:
            if "RESOURCE_DOES_NOT_EXIST" not in str(exc) and "not found" not in str(exc):
                raise
    if location != storage:
        raise SubjectError(f"{serves} names those at {location!r} by now; {_AGAIN}")
    return model_id


#: tag of a logged model that was logged in no run: the run that keeps its reports
RUN_TAG = "privgate.reports_run"


def join_folder(model_id: str, policy: str = "") -> str:
    """Return the folder, within the run's artifacts, of the reports about a model, or of those by one policy."""
    return f"{REPORTS}/{path_part(model_id)}" + (f"/{path_part(policy)}" if policy else "")


def find_run(client: Any, model_id: str) -> str:
    """Return the run that keeps the reports about a logged model; empty if it has none yet."""
    held = client.get_logged_model(model_id)
    return str(held.source_run_id or dict(held.tags).get(RUN_TAG, ""))


def locate_reports(client: Any, model_id: str) -> str:
    """Return where the reports about a logged model lie; ``SubjectError``: there can be none, it has no run."""
    with answering(f"finding the reports about {model_id}"):
        run_id = find_run(client, model_id)
        if not run_id:
            raise SubjectError(f"no report is kept about {model_id}; run privgate check on it")
        root = str(client.get_run(run_id).info.artifact_uri)
    return f"{root.rstrip('/')}/{join_folder(model_id)}"
