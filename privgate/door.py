"""The door out: while a command runs, its process asks the registry, what the operator configured, what was vetted.

Whoever may write to a registry says where data, files and reports lie. Each such address is vetted before it is used
(by the addresses of the registry), and only what was vetted is let through: a name that nobody vetted is not even
looked up, so a caller who forgets to ask reaches nobody. Libraries of other people connect in this process, too; the
interpreter asks this module about each of their sockets. What connects without the interpreter (psycopg2, pyarrow's
own S3 and HDFS) is not seen: such libraries are given addresses of the operator's, or vetted ones, and no others.
"""

import contextlib
import ipaddress
import os
import re
import socket
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from privgate.errors import RegistryError

#: where the registry keeps artifacts beside its own proxy; also hosts that a command may ask besides
PLACES = "PRIVGATE_ARTIFACT_PLACES"
_USUAL = {"http": 80, "https": 443, "mlflow-artifacts": 80, "ftp": 21, "sftp": 22, "ssh": 22}
_USUAL |= {"mysql": 3306, "postgresql": 5432, "mssql": 1433}
#: variables in which an operator names services; others (of a CI job) may repeat what a stranger wrote
_OPERATORS = re.compile(r"(AWS|AZURE|MLFLOW|PRIVGATE|DATABRICKS|GOOGLE|GCE|STORAGE|DASK)_\w+|\w+_PROXY", re.IGNORECASE)
_CLOUD = r"169\.254\.169\.254|169\.254\.170\.2|169\.254\.170\.23|metadata\.google\.internal"
#: names of services and regions: others below amazonaws.com are rented to anybody, by names of his own
_AWS = r"(s3|s3(-|express-)[a-z0-9-]+|sts|sts-fips|oidc|sso)(\.dualstack)?(\.[a-z]{2,4}(-[a-z]+)+-[0-9])?(\.vpce)?"
#: the providers' own hosts, by scheme: of the store, and of whoever gives its credentials
_PROVIDERS = {
    "s3": rf"(.+\.)?{_AWS}\.amazonaws\.(com(\.cn)?|eu)|{_CLOUD}",
    "gs": rf"(storage|oauth2|sts|iamcredentials|www)\.googleapis\.com|accounts\.google\.com|{_CLOUD}",
    "abfs": rf"[a-z0-9]+\.(blob|dfs)\.core\.(windows\.net|chinacloudapi\.cn|usgovcloudapi\.net)"
    rf"|login\.microsoftonline\.(com|us)|{_CLOUD}",
    "databricks": r".+\.((cloud|gcp)\.databricks\.(com|us)|azuredatabricks\.net)",
}
_ALIKE = {
    "wasb": "abfs",
    "wasbs": "abfs",
    "abfss": "abfs",
    "gcs": "gs",
    "az": "abfs",
    "s3a": "s3",
    "dbfs": "databricks",
}
#: headers that say nothing about who asks
_ANYBODYS = {"accept", "accept-encoding", "connection", "content-length", "content-type", "range", "user-agent"}


@dataclass
class _Door:
    """Who may be asked: by host and port, by a provider's names, and which addresses these names have."""

    registries: dict[str, tuple[str, str, int] | None] = field(default_factory=dict)
    hosts: set[tuple[str, int]] = field(default_factory=set)
    providers: set[str] = field(default_factory=set)
    named: dict[str, set[str]] = field(default_factory=dict)
    held_open: int = 0

    def lets(self, host: str, port: int) -> bool:
        """Whether this host may be asked at this port; -1 is looking its name up."""
        host = host.lower().rstrip(".")
        known = (host, port) in self.hosts or (port == -1 and any(host == h for h, _ in self.hosts))
        return bool(self.held_open) or known or any(re.fullmatch(p, host) for p in self.providers)


_door: _Door | None = None
_lookup = socket.getaddrinfo
_installed: set[str] = set()


@contextlib.contextmanager
def shut() -> Iterator[None]:
    """While this lasts, this process asks nobody but the registry, the operator's services and what is admitted."""
    global _door  # noqa: PLW0603  a process has one network
    before, _door = _door, _Door()
    if "hook" not in _installed:
        _installed.add("hook")
        sys.addaudithook(_ask)
        socket.getaddrinfo = _named
    for name, value in os.environ.items():
        if _OPERATORS.fullmatch(name):
            for address in re.findall(r"[a-z][a-z0-9+.-]*://[^\s,;\"']+", value):
                admit(address)
    for scheme, address in urllib.request.getproxies().items():
        if scheme != "no":  # whom no proxy asks is not named as a service
            admit(address if "://" in address else f"http://{address}")
    try:
        yield
    finally:
        _door = before


def is_shut() -> bool:
    """Whether a command runs."""
    return _door is not None


@contextlib.contextmanager
def held_open() -> Iterator[None]:
    """While this lasts, code that the operator named himself asks whom it likes; the registry's password stays."""
    door = _door or _Door()
    door.held_open += 1
    try:
        yield
    finally:
        door.held_open -= 1


def admit(uri: str) -> None:
    """Let through whoever is asked for what lies at an address, which the operator gave or somebody vetted."""
    if _door is None:
        return
    with contextlib.suppress(ValueError):
        parsed = urllib.parse.urlsplit(uri)
        scheme = parsed.scheme.partition("+")[0].lower()
        if parsed.hostname and (port := parsed.port or _USUAL.get(scheme)):
            _door.hosts.add((parsed.hostname.rstrip("."), port))
        kind = "databricks" if uri.startswith("databricks") else _ALIKE.get(scheme, scheme)
        _door.providers |= {_PROVIDERS[kind]} if kind in _PROVIDERS else set()
        if kind == "databricks":  # its files lie with any of the three
            _door.providers |= set(_PROVIDERS.values())


def admit_cluster(address: str) -> None:
    """Let a scheduler through; a cluster without an address (Spark, joblib) tells nobody whom it asks."""
    admit(address)
    if _door is not None and not address.startswith(("tcp://", "tls://")):
        _door.held_open += 1


def admit_name(host: str) -> None:
    """Let a name be looked up, and nobody be asked."""
    if _door is not None:
        _door.hosts.add((host.lower().rstrip("."), -1))


def registry(tracking_uri: str, host: str = "") -> None:
    """Let the registry through, with its credentials, and no other; ``host`` is asked where the address is a name."""
    if _door is None:
        return
    admit(tracking_uri)
    admit(host := host or tracking_uri)
    _door.registries[tracking_uri] = _origin(host) if host.startswith("http") else None
    if "requests" not in _installed:
        from requests.adapters import HTTPAdapter

        _installed.add("requests")
        send = HTTPAdapter.send

        def sent(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            _vet(request)
            return send(self, request, *args, **kwargs)

        HTTPAdapter.send = sent  # type: ignore[method-assign]  # every request and redirect of MLflow's goes by it


def registries() -> list[str]:
    """Return the addresses of the registries of this command."""
    return list(_door.registries) if _door is not None else []


def _vet(request: Any) -> None:
    """Refuse a request to anybody who was not admitted; take from any other than the registry's what says who asks."""
    if _door is None or (origin := _origin(request.url)) in _door.registries.values():
        return
    if not _door.lets(origin[1], origin[2]):
        raise _refused(f"{origin[1]}:{origin[2]}")
    if str(request.headers.get("User-Agent", "")).startswith(("mlflow", "privgate")):
        for name in [n for n in request.headers if n.lower() not in _ANYBODYS]:
            del request.headers[name]


def _origin(url: str) -> tuple[str, str, int]:
    parsed = urllib.parse.urlsplit(url)
    try:
        port = parsed.port or _USUAL.get(parsed.scheme, 0)
    except ValueError:
        port = 0
    return parsed.scheme, (parsed.hostname or "").rstrip("."), port


def _named(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
    """Look a name up, and remember whose addresses the answer holds: connections are made to addresses."""
    found = _lookup(host, port, *args, **kwargs)
    if _door is not None and host:
        name = (host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)).lower().rstrip(".")
        for entry in found:
            _door.named.setdefault(str(entry[4][0]), set()).add(name)
    return found


def _ask(event: str, args: tuple[Any, ...]) -> None:
    """Answer the interpreter, which is about to look a name up, to connect, or to send."""
    if _door is None or _door.held_open or not event.startswith(("socket.", "http.client.send")):
        return
    if event in {"socket.getaddrinfo", "socket.gethostbyname"}:
        host = args[0].decode("ascii", "replace") if isinstance(args[0], bytes) else args[0]
        if host and not (_is_own_name(str(host)) or _door.lets(str(host), -1)):
            raise _refused(str(host))
    elif event in {"socket.connect", "socket.sendto", "socket.sendmsg"}:
        _connecting(args[0], args[1])
    elif event == "http.client.send":
        _by_proxy(args[1])


def _connecting(sock: Any, address: Any) -> None:
    if sock.family not in {socket.AF_INET, socket.AF_INET6} or not isinstance(address, tuple) or _door is None:
        return
    place, port = str(address[0]), int(address[1])
    if not any(_door.lets(name, port) for name in (place, *_door.named.get(place, ()))):
        raise _refused(f"{place}:{port}")


def _by_proxy(data: Any) -> None:
    """Refuse what a proxy is told to ask: its own address is all that the socket shows."""
    line = re.match(rb"[A-Z]+ (?:(https?://\S+)|([^/\s]\S*:[0-9]+)) HTTP/", data) if isinstance(data, bytes) else None
    if line is not None and _door is not None:
        _, host, port = _origin((line[1] or b"http://" + line[2]).decode("latin-1"))
        if not _door.lets(host, port):
            raise _refused(f"{host}:{port}")


def _is_own_name(host: str) -> bool:
    """Whether nobody is asked for the addresses of a name."""
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(host.partition("%")[0]))
    return host in {"localhost", socket.gethostname()}


def _refused(whom: str) -> RegistryError:
    return RegistryError(
        f"this command would ask {whom[:200]!r}, which is neither the registry nor a place that the operator named; "
        f"if that is meant, list its address in {PLACES}"
    )
