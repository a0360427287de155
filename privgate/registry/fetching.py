"""Reading training data over http(s) from where the operator allowed it, and from nowhere that an answer leads to.

Each connection goes to an address that was looked at just before, so that no second answer of a name server counts; a
redirect is followed only to what is listed, too. Proxies of the environment are not asked: they would connect for us.
"""

import http.client
import shutil
import socket
import ssl
import urllib.parse
from collections.abc import Iterable
from pathlib import Path

from privgate.errors import RegistryError, SubjectError
from privgate.registry import addresses
from privgate.subject.sources import check_path

_SECONDS = 60.0
_MOST_REDIRECTS = 5
_MOVED = frozenset({301, 302, 303, 307, 308})


def fetch_all(uri: str, names: Iterable[str], folder: Path) -> Path:
    """Write the named files below ``uri`` to ``folder`` and return it."""
    for name in names:
        place = folder / check_path(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        fetch(f"{uri.rstrip('/')}/{urllib.parse.quote(name)}", place)
    return folder


def fetch(uri: str, place: Path) -> Path:
    """Write what lies at an http(s) address to a file and return that.

    Raises
    ------
    SubjectError
        The address, or one that it leads to, may not be read.
    RegistryError
        It does not answer.
    """
    asked = uri
    try:
        for _ in range(_MOST_REDIRECTS + 1):
            link = _link(asked)
            try:
                parts = urllib.parse.urlsplit(asked)
                link.request("GET", urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, "")))
                answer = link.getresponse()
                if answer.status == 200:
                    with place.open("wb") as written:
                        shutil.copyfileobj(answer, written, 1 << 20)
                    return place
                if answer.status not in _MOVED:
                    raise RegistryError(f"{asked!r:.200} answers {answer.status} {answer.reason}")
                asked = urllib.parse.urljoin(asked, answer.getheader("Location", ""))
            finally:
                link.close()
    except (OSError, http.client.HTTPException) as exc:
        raise RegistryError(f"{asked!r:.200} does not answer ({type(exc).__name__})") from exc
    raise SubjectError(f"{uri!r:.200} leads on and on; name the last address")


def _link(uri: str) -> http.client.HTTPConnection:
    """Return a connection to a vetted address of a URI's host."""
    vetted = addresses.reachable(uri)
    parts = urllib.parse.urlsplit(uri)
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    host = parts.hostname or ""
    link = http.client.HTTPConnection(host, port, timeout=_SECONDS)
    plain = _connected(vetted, port)
    link.sock = ssl.create_default_context().wrap_socket(plain, server_hostname=host) if secure else plain
    return link


def _connected(vetted: list[str], port: int) -> socket.socket:
    problem: OSError = OSError("no address")
    for address in vetted:
        try:
            return socket.create_connection((address, port), timeout=_SECONDS)
        except OSError as exc:
            problem = exc
    raise problem
