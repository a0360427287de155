"""Is the registry really guarded, and will what is in production still count next week: questions with answers."""

import secrets
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from privgate.errors import PrivgateError, RegistryError
from privgate.guard import statement
from privgate.guard.config import Guard, fold
from privgate.guard.verification import verify
from privgate.guard.writes import PROBE
from privgate.registry.client import answering, connect, list_pages
from privgate.registry.rest import session
from privgate.training import isolation

_SOON = timedelta(days=14)


class DoctorAnswer(NamedTuple):
    """A sentence and a state of "fine", "look" and "wrong": something is released that should not be, or could be."""

    state: str
    text: str


_FINE, _LOOK, _WRONG = (partial(DoctorAnswer, state) for state in ("fine", "look", "wrong"))


def examine(guard: Guard, *, tracking_uri: str | None = None) -> Iterator[DoctorAnswer]:
    """Give one answer after the other about a server and its guard; what cannot be answered is ``wrong``."""
    client = connect(tracking_uri)
    questions: tuple[tuple[str, Callable[[], Iterator[DoctorAnswer]]], ...] = (
        ("is the server guarded", lambda: _probe(client)),
        ("do the keys count", lambda: _keys(guard)),
        ("does everything released verify", lambda: _released(client, guard)),
        ("do released files stay as they are", lambda: _files(client, guard)),
        ("can training code be boxed", _try_sandbox),
    )
    for question, ask in questions:
        try:
            yield from ask()
        except PrivgateError as exc:
            yield _WRONG(f"{question}: {exc}")


def _probe(client: Any) -> Iterator[DoctorAnswer]:
    from mlflow.exceptions import MlflowException

    try:
        # not the client's own method, which looks for the model first
        client._get_registry_client().store.set_registered_model_alias(PROBE, "probe", "1")  # noqa: SLF001  the only door
    except MlflowException as exc:
        if "privgate: probe: gate active" in str(exc):
            yield _FINE("the registry is guarded: it answered the probe")
            return
        if exc.error_code == "PERMISSION_DENIED":
            raise RegistryError("this user may not set aliases of any model; ask as an administrator") from exc
        with answering("probing the registry"):
            client.search_registered_models(max_results=1)
    yield _WRONG("the registry is not guarded: start the server with --registry-store-uri privgate:<inner uri>")


def _keys(guard: Guard) -> Iterator[DoctorAnswer]:
    now = statement.now()
    for key in (k for k in guard.trust.keys if not k.revoked):
        end, called = statement.when(key.not_after), f"key {key.key_id[:12]}"
        if end < now:
            yield _LOOK(f"{called} counts no longer; remove it")
        elif end < now + _SOON:
            yield _LOOK(f"{called} counts only until {key.not_after}; make another by privgate guard keys")
        else:
            yield _FINE(f"{called} counts until {key.not_after}")
    if all(k.refusal("verdict", (k.scope or ("",))[0], now) for k in guard.trust.keys):
        yield _WRONG("no key may sign verdicts now; nothing can be released")


def released(client: Any, guard: Guard) -> Iterator[tuple[str, str, str]]:
    """Give (model, "/version", target) of all that holds a protected alias or stage, or lies in a protected model.

    Each protected alias is asked for on each model, as a reader asks: what the registry answers is what is served.
    What cannot be read is given, too, by "@alias" or a number that may be: verifying it says so.
    """
    models = _list_models(client)
    for model in models:
        held = {alias: f"/{version}" for alias, version in dict(model.aliases).items() if guard.alias_meant(alias)}
        for alias in sorted(guard.aliases):
            answer = _ask(client, "get_model_version_by_alias", model.name, alias)
            if answer is not None:
                held[alias] = f"/{answer.version}" if answer.version else f"@{alias}"
        yield from ((model.name, place, alias) for alias, place in sorted(held.items()))
    with answering("listing model versions"):
        versions = list(list_pages(client.search_model_versions))
    listed = {held.name for held in versions}
    for model in (m for m in models if m.name not in listed):  # MLflow hides all of who calls itself a prompt
        newest = max((int(latest.version) for latest in model.latest_versions), default=0)
        answers = (_ask(client, "get_model_version", model.name, str(n)) for n in range(1, newest + 1))
        versions += [held for held in answers if held is not None]
    for held in versions:
        # what does not answer may hold any stage
        if fold(held.current_stage or "") in guard.stages or (isinstance(held, SimpleNamespace) and guard.stages):
            yield held.name, f"/{held.version}", held.current_stage or min(guard.stages)
        elif guard.protects_model(held.name):
            yield held.name, f"/{held.version}", ""


def _list_models(client: Any) -> list[Any]:
    """Return all models, and what calls itself a prompt: it is served like any other, and other searches hide it."""
    search = client.search_registered_models
    with answering("listing registered models"):
        return [*list_pages(search), *list_pages(search, "tags.`mlflow.prompt.is_prompt` = 'true'")]


def _ask(client: Any, method: str, name: str, what: str) -> Any:
    """Return a version past the client's own methods, which hide prompts; None where nothing is, bare if unreadable."""
    from mlflow.exceptions import MlflowException

    with suppress(RegistryError), answering("asking the registry as a reader does"):
        try:
            return getattr(client._get_registry_client(), method)(name, what)  # noqa: SLF001  loading a model asks this
        except MlflowException as exc:
            if exc.error_code in {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}:
                return None
            raise
    return SimpleNamespace(name=name, version=(what if method == "get_model_version" else ""), current_stage="")


def _released(client: Any, guard: Guard) -> Iterator[DoctorAnswer]:
    """Verify everything that is released: this finds what went around the gate, and what changed behind it."""
    seen = set[tuple[str, str, str]]()
    for held in released(client, guard):  # one after the other: a listing may break behind the first
        if held not in seen:
            seen.add(held)
            yield _verified(client, guard, *held)
    if not seen:
        yield _FINE("nothing is released")


def _verified(client: Any, guard: Guard, name: str, place: str, target: str) -> DoctorAnswer:
    uri, soon = f"models:/{name}{place}", statement.now() + _SOON
    where = f"models:/{name:.300}{place}" + (f" as {target!r}" if target else "")
    if guard.excepts(name):
        return _FINE(f"{where} needs no statement: the guard's configuration excepts its model")
    try:
        expires = verify(uri, guard, target=target or None, tracking_uri=str(client.tracking_uri)).claims.expires
    except Exception as exc:  # noqa: BLE001  one that cannot be read must not hide the others
        why = f"{exc}" if isinstance(exc, PrivgateError) else f"it cannot be read ({type(exc).__name__})"
        gone = target and "RESOURCE_DOES_NOT_EXIST" in why
        step = f"; move {target!r} to a version that verifies, or delete it" if gone else ""
        return _WRONG(f"{where} is released but does not verify: {why:.2000}{step}")
    end = f", but its statement expires on {expires.date()}; check and sign again" if expires < soon else ""
    return DoctorAnswer("look" if end else "fine", f"{where} verifies{end}")


def _files(client: Any, guard: Guard) -> Iterator[DoctorAnswer]:
    """Try to delete what does not exist below one released version."""
    if not guard.check_files:
        yield _LOOK("promotions do not compare files; set check_files: true in the guard's configuration")
    held = {(name, place) for name, place, _ in released(client, guard) if not guard.excepts(name)}
    versions = {(name, place[1:]) for name, place in held if place.startswith("/")}
    places = set[str]()
    for version in sorted(versions):
        with suppress(RegistryError), answering("asking where released files lie"):  # that one does not verify, either
            places.add(str(client.get_model_version_download_uri(*version)))
    if served := min((place for place in places if place.startswith("mlflow-artifacts:")), default=""):
        yield _probe_files(str(client.tracking_uri), served)
    if places and not served:
        yield _LOOK("clients reach released files past the server; keep old versions there, or serve them here")


def _probe_files(address: str, place: str) -> DoctorAnswer:
    """Return whether the server refuses to delete a random name, which does not exist, below a released version."""
    import requests

    path = urllib.parse.quote(f"{urllib.parse.urlsplit(place).path.strip('/')}/privgate-probe-{secrets.token_hex(8)}")
    try:
        answer = session().delete(f"{address.rstrip('/')}/api/2.0/mlflow-artifacts/artifacts/{path}", timeout=30)
    except requests.RequestException as exc:
        raise RegistryError(f"the server's artifacts do not answer ({type(exc).__name__})") from exc
    if answer.status_code == 403 and "which is released" in answer.text:
        return _FINE("files of released versions stay as they are: the server refused a probe below one")
    if answer.status_code == 403:
        return _LOOK("this user may not delete artifacts, so that nobody knows who may; ask as an administrator")
    step = "start it with --artifacts-destination privgate:<destination>"
    return _WRONG(f"whoever reaches the server may change files of released versions: {step}")


def _try_sandbox() -> Iterator[DoctorAnswer]:
    what, why = "a check on this machine runs training code", isolation.missing()
    yield _LOOK(f"{what} without a box: {why}") if why else _FINE(f"{what} in a box")
