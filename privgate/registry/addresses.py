"""Which addresses are read on a stranger's word, and reading training data over http(s) from them."""

import contextlib
import http.client
import ipaddress
import os
import re
import shutil
import socket
import ssl
import urllib.parse
from pathlib import Path

from privgate.errors import RegistryError, SubjectError

# Whoever logs a model says where its data and files lie; checker, signer and verifier read them outside any box, with
# their own credentials. Read are the registry's own artifacts, files of this machine, and object stores at their
# providers' addresses; anything else only if ``PRIVGATE_DATA_SOURCES`` lists what it begins with, separated by spaces.
# Where that is set it is the whole list for training data; ``privgate serve`` sets an empty one. Reports are written to
# the registry's own artifacts alone, or to what ``PRIVGATE_ARTIFACT_PLACES`` lists. Whatever opens an address here asks
# these lists first; nothing else in the process is watched.

VARIABLE = "PRIVGATE_DATA_SOURCES"
#: where the registry keeps artifacts beside its own proxy
PLACES = "PRIVGATE_ARTIFACT_PLACES"
#: where names of hosts are the provider's, and credentials the environment's
_STORES = frozenset({"s3", "gs", "dbfs"})
_AZURE = frozenset({"wasb", "wasbs", "abfs", "abfss"})
_AZURE_HOST = re.compile(r"[a-z0-9-]+@[a-z0-9]+\.(blob|dfs)\.core\.(windows\.net|chinacloudapi\.cn|usgovcloudapi\.net)")
#: no folder holds anybody's data there, and reading some of its files waits for ever
_SPECIAL = ("/proc", "/sys", "/dev")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
#: what of IPv6 is the world's
_WORLD = ipaddress.IPv6Network("2000::/3")


def refuse_data(uri: str) -> None:
    """Refuse an address of training data that nobody allowed to be read. ``SubjectError``: says what to set."""
    scheme, plain = _plain(uri)
    stored = VARIABLE not in os.environ and (scheme in {"", "file"} or _is_store(uri))
    if plain and (stored or _is_listed(uri)):
        return
    raise SubjectError(
        f"the training data are said to lie at {uri!r:.200}, which this gate may not read: whoever wrote the recipe "
        f"would have it ask there; if that is meant, list the address, or what it begins with, in {VARIABLE}"
    )


def refuse_files(uri: str, *, tracking_uri: str | None) -> None:
    """Raise ``SubjectError`` for files that are neither the registry's, nor here, nor in a known store, nor listed."""
    scheme, plain = _plain(uri)
    host = urllib.parse.urlsplit(uri).netloc if plain else ""
    server = urllib.parse.urlsplit(tracking_uri or os.environ.get("MLFLOW_TRACKING_URI", ""))
    fine = (
        scheme in {"", "file"}
        or _is_store(uri)
        or (scheme == "mlflow-artifacts" and host in {"", server.netloc})
        or (scheme in {"http", "https"} and bool(host) and (scheme, host) == server[:2])
    )
    if plain and (fine or _is_place(uri) or _is_listed(uri)):
        return
    raise SubjectError(
        f"the files are said to lie at {uri!r:.200}, which is neither the registry's nor an object store; whoever "
        f"registered them would have this gate ask there; if that is meant, list the address in {VARIABLE}"
    )


def refuse_written(uri: str, *, tracking_uri: str) -> None:
    """Raise ``RegistryError`` before anything is written where neither the registry nor the operator says."""
    with contextlib.suppress(ValueError, RuntimeError):  # no address, or nobody's home
        if _plain(uri)[1] and (_is_own(uri, tracking_uri) or _is_place(uri)):
            return
    raise RegistryError(
        f"reports on this model would be written to {uri!r:.200}, a place of its experiment and not the registry's "
        f"own; if artifacts are meant to lie there, list it, or what it begins with, in {PLACES}"
    )


def _is_own(uri: str, tracking_uri: str) -> bool:
    """Whether a place is the registry's by its address: its artifact service, or beside a store on this machine."""
    registry, place = urllib.parse.urlsplit(tracking_uri), urllib.parse.urlsplit(uri)
    if registry.scheme in {"http", "https"}:
        if place.scheme == "mlflow-artifacts":  # MLflow's client asks that host by the registry's own scheme
            return not place.netloc or _host(place, registry.scheme) == _host(registry, registry.scheme)
        return _lies_below(f"{tracking_uri.rstrip('/')}/api/2.0/mlflow-artifacts/artifacts", uri)
    if tracking_uri == "databricks" or registry.scheme == "databricks":
        return _lies_below("dbfs:/databricks/mlflow-tracking", uri)
    here = _folder(uri) if place.scheme in {"", "file"} else None
    if here is None:
        return False
    # MLflow's own choice where nobody makes one: mlruns/<experiment>, below the folder in which that was made
    if re.search(r"/mlruns/[0-9]+(/|$)", str(here)):
        return True
    if registry.scheme == "sqlite":
        return here.is_relative_to(Path(urllib.parse.unquote(registry.path[1:])).resolve().parent)
    store = _folder(tracking_uri) if registry.scheme in {"", "file"} else None
    return store is not None and here.is_relative_to(store)


def _host(parsed: urllib.parse.SplitResult, scheme: str) -> tuple[str, int | None]:
    usual = 443 if scheme == "https" else 80
    try:
        return parsed.hostname or "", usual if parsed.port is None else parsed.port
    except ValueError:  # a port that is none
        return "", None


def _lies_below(prefix: str, uri: str) -> bool:
    hosts = {urllib.parse.urlsplit(u).netloc.lower() for u in (prefix, uri)}
    return len(hosts) == 1 and _begins(prefix, uri)


def _is_place(uri: str) -> bool:
    return any(_lies_below(prefix, uri) for prefix in os.environ.get(PLACES, "").split())


def reachable(uri: str) -> list[str]:
    """Return the addresses that an http(s) URI is read from; ``SubjectError``: it is not listed, or leads inside."""
    refuse_data(uri)
    parsed = urllib.parse.urlsplit(uri)
    host = parsed.hostname or ""
    named = any(_begins(p, uri) and urllib.parse.urlsplit(p).hostname for p in _listed())
    try:
        port = parsed.port or (443 if parsed.scheme == "https" else 80)
        found = [str(a[4][0]) for a in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except (OSError, ValueError, UnicodeError) as exc:
        raise SubjectError(f"the host of {uri!r:.200} has no address") from exc
    for address in found:
        if inside := _inside(address):
            itself = host in {address, "localhost"}
            if not named or (inside == "machine" and not itself):
                raise SubjectError(
                    f"{uri!r:.200} leads to {address}, an address of this {inside}, which is asked only where "
                    f"{VARIABLE} lists {address if inside == 'machine' else host!r} itself"
                )
    return found


def _inside(address: str) -> str:
    """Return what an address that is not the world's belongs to: ``machine``, ``network``; empty for the world's."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        carried = ip.ipv4_mapped or ip.sixtofour or (ip.teredo or (None, None))[1]
        if ip in _NAT64:
            carried = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if carried is None and ip not in _WORLD and not (ip.is_loopback or ip.is_link_local or ip.is_unspecified):
            return "network"  # older ways to carry an address of IPv4 among them
        ip = carried or ip
    if ip.is_loopback or ip.is_link_local or ip.is_unspecified:
        return "machine"
    return "" if ip.is_global and not ip.is_multicast else "network"


def _plain(uri: str) -> tuple[str, bool]:
    """Return the scheme, and whether an address means one thing to every library that may read it."""
    scheme, colon, rest = uri.partition(":")
    scheme = scheme.lower() if colon and re.fullmatch("[A-Za-z][A-Za-z0-9+.-]*", scheme) else ""
    odd = re.search(r"[\x00-\x20\\]|::", uri) if scheme else re.search(r"[\x00-\x1f]|://", uri)
    if scheme not in {"http", "https"}:  # pandas' file systems take a host, a proxy or a password from a query
        odd = odd or re.search("[?#]", uri if scheme else "")
    if scheme in {"", "file"}:
        path = _folder(uri)
        # MLflow takes a plain path for an address and decodes it, so "%2e%2e" would be a step up after this look
        coded = not scheme and urllib.parse.unquote(uri) != uri
        return scheme, not (odd or coded) and path is not None and not any(path.is_relative_to(s) for s in _SPECIAL)
    inside = urllib.parse.unquote(urllib.parse.unquote(urllib.parse.urlsplit(uri).path))
    steps = {part.partition(";")[0] for part in inside.split("/")}  # some servers take "..;" for a step up
    fine = rest.startswith("/") and not odd and not {".", ".."} & steps
    account = urllib.parse.urlsplit(uri).username if scheme not in _AZURE else None
    return scheme, fine and account is None


def _folder(uri: str) -> Path | None:
    if not uri.lower().startswith("file:"):
        return Path(uri).expanduser().resolve()
    parsed = urllib.parse.urlsplit(uri)
    return Path(urllib.parse.unquote(parsed.path)).resolve() if parsed.netloc in {"", "localhost"} else None


def _is_store(uri: str) -> bool:
    parsed = urllib.parse.urlsplit(uri)
    return (parsed.scheme in _STORES and ":" not in parsed.netloc and parsed.netloc not in {".", ".."}) or (
        parsed.scheme in _AZURE and bool(_AZURE_HOST.fullmatch(parsed.netloc))
    )


def _listed() -> list[str]:
    return os.environ.get(VARIABLE, "").split()


def _is_listed(uri: str) -> bool:
    return any(_begins(prefix, uri) for prefix in _listed())


def _begins(prefix: str, uri: str) -> bool:
    """Whether an address begins with a listed one, by whole parts of its path."""
    scheme, plain = _plain(uri)
    if scheme in {"", "file"}:
        above, place = _folder(prefix) if _plain(prefix)[0] in {"", "file"} else None, _folder(uri)
        return plain and above is not None and place is not None and place.is_relative_to(above)
    listed, asked = urllib.parse.urlsplit(prefix), urllib.parse.urlsplit(uri)
    if listed.scheme != asked.scheme or (listed.netloc and listed.netloc.lower() != asked.netloc.lower()):
        return False
    above_path = listed.path.rstrip("/")
    return asked.path == above_path or asked.path.startswith(f"{above_path}/")


# Each connection goes to an address that was looked at just before, so that no second answer of a name server counts;
# a redirect is followed only to what is listed, too. Proxies of the environment would connect for us: none is asked.
_SECONDS = 60.0  # for an answer
_MOST_REDIRECTS = 5  # each of them vetted
_MOVED = frozenset({301, 302, 303, 307, 308})


def fetch(uri: str, place: Path) -> Path:
    """Write what lies at an http(s) address to a file; ``SubjectError``: it, or where it leads, may not be read."""
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
    """Return a connection to a vetted address of a URI's host, the first that answers."""
    vetted, parts = reachable(uri), urllib.parse.urlsplit(uri)
    secure, host = parts.scheme == "https", parts.hostname or ""
    port = parts.port or (443 if secure else 80)
    link = http.client.HTTPConnection(host, port, timeout=_SECONDS)
    problem = OSError("no address")
    for address in vetted:
        try:
            plain = socket.create_connection((address, port), timeout=_SECONDS)
        except OSError as exc:
            problem = exc
            continue
        link.sock = ssl.create_default_context().wrap_socket(plain, server_hostname=host) if secure else plain
        return link
    raise problem
