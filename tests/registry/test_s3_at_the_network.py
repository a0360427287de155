"""S3 as a verifier and a checker see it: whom they ask, and what an answer of a store's may do to them."""

import contextlib
import os
import re
import ssl
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

import pytest

from privgate import digest, door
from privgate.errors import PrivgateError, RegistryError, SubjectError
from privgate.registry import stored_files
from privgate.registry.addresses import refuse_files
from privgate.registry.client import download
from privgate.registry.stored_files import BucketFiles, FolderFiles

boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")
#: what boto3 knows of S3 is read once, which takes five times as long as all else of a client
LOADER = pytest.importorskip("botocore.loaders").create_loader()
HONEST = {"m/MLmodel": b"flavors: {}\n", "m/data/weights.json": b"1"}


class Store(ThreadingHTTPServer):
    """Answers as S3 does: lists ``files`` and gives them; ``answer`` may do something else."""

    def __init__(self):
        self.files, self.asked, self.answer = dict(HONEST), [], None
        super().__init__(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server_port}"

    def handle_error(self, *_):
        pass


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        store, asked = self.server, urllib.parse.urlsplit(self.path)
        store.asked.append((self.path, dict(self.headers)))
        query = urllib.parse.parse_qs(asked.query, keep_blank_values=True)
        if store.answer is not None and store.answer(self, query):
            return
        if "prefix" in query:
            self.give(200, self.listed(query))
        else:
            key = urllib.parse.unquote(asked.path).split("/", 2)[2]
            self.give(
                200 if key in store.files else 404, store.files.get(key, b"<Error><Code>NoSuchKey</Code></Error>")
            )

    do_HEAD = do_GET  # noqa: N815  the library's name

    def listed(self, query, more=""):
        prefix, between = query["prefix"][0], query.get("delimiter", [""])[0]
        spell = urllib.parse.quote if query.get("encoding-type") == ["url"] else escape
        below = {k: v for k, v in self.server.files.items() if k.startswith(prefix)}
        folders = {prefix + k[len(prefix) :].split("/")[0] + "/" for k in below if between and "/" in k[len(prefix) :]}
        plain = {k: v for k, v in below.items() if not any(k.startswith(f) for f in folders)}
        moment = "<LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        rows = [f"<Contents><Key>{spell(k)}</Key><Size>{len(v)}</Size>{moment}</Contents>" for k, v in plain.items()]
        rows += [f"<CommonPrefixes><Prefix>{spell(f)}</Prefix></CommonPrefixes>" for f in folders]
        coded = "<EncodingType>url</EncodingType>" if "encoding-type" in query else ""
        more = more or "<IsTruncated>false</IsTruncated>"
        space = "http://s3.amazonaws.com/doc/2006-03-01/"
        return f"<ListBucketResult xmlns='{space}'>{more}{coded}{''.join(rows)}</ListBucketResult>".encode()

    def give(self, status, body, length=None, **headers):
        self.send_response(status)
        usual = {"Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT", "ETag": '"x"'}
        usual["Content-Length"] = str(len(body) if length is None else length)
        for name, value in (usual | {k.replace("_", "-"): v for k, v in headers.items()}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.close_connection = length is not None

    def log_message(self, *_):
        pass


@pytest.fixture
def stores():
    """A store of the operator's, and a listener of the author's that answers alike."""
    made = [Store(), Store()]
    for one in made:
        threading.Thread(target=one.serve_forever, args=(0.02,), daemon=True).start()
    yield made
    for one in made:
        one.shutdown()
        one.server_close()


@pytest.fixture
def store(stores, monkeypatch, tmp_path):
    """The operator's store, which the environment names, while a command runs."""
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it keeps the settings of whoever asked first
    monkeypatch.setattr("botocore.session.create_loader", lambda *_: LOADER)
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    told = {"AWS_ACCESS_KEY_ID": "of-this-test", "AWS_SECRET_ACCESS_KEY": "of-this-test", "AWS_MAX_ATTEMPTS": "1"}
    told |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
    told |= {"AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "no")}
    for name, value in (told | {"MLFLOW_S3_ENDPOINT_URL": f"http://{stores[0].host}"}).items():
        monkeypatch.setenv(name, value)
    with door.shut():
        door.registry("http://registry")  # that names these places; what was connected before, vets by it
        yield stores[0]


@pytest.fixture
def one_client(store, monkeypatch):
    """Make boto3's client once: each takes longer than all that a test asks of it."""
    made = stored_files._client()
    monkeypatch.setattr(stored_files, "_client", lambda: made)


def verifier(uri="s3://bucket/m"):
    refuse_files(uri, tracking_uri="http://registry")
    return BucketFiles(uri).digests()


def checker(uri="s3://bucket/m", *, folder):
    return FolderFiles(download(uri, folder, tracking_uri="http://registry")).digests()


def test_the_stand_in_is_one(store, tmp_path):
    assert verifier() == checker(folder=tmp_path / "of-mlflow")
    assert set(verifier()) == {"MLmodel", "data/weights.json"}


# whom they ask

OURS = [
    "s3.amazonaws.com",
    "bucket.s3.amazonaws.com",
    "s3.eu-central-1.amazonaws.com",
    "bucket.s3.eu-central-1.amazonaws.com",
    "a.b.s3.us-gov-west-1.amazonaws.com",
    "s3-us-west-2.amazonaws.com",
    "s3-fips.us-east-1.amazonaws.com",
    "sts.amazonaws.com",
    "s3.dualstack.us-east-1.amazonaws.com",
    "s3.cn-north-1.amazonaws.com.cn",
    "sts.us-east-1.amazonaws.com",
    "bucket--use1-az4--x-s3.s3express-use1-az4.us-east-1.amazonaws.com",
    "s3express-control.us-east-1.amazonaws.com",
    "name-1.s3-accesspoint.us-east-1.amazonaws.com",
    "bucket.vpce-1a.s3.us-east-1.vpce.amazonaws.com",
    "bucket.s3.eusc-de-east-1.amazonaws.eu",  # the European sovereign cloud
    "portal.sso.us-east-1.amazonaws.com",
    "oidc.us-east-1.amazonaws.com",
    "sts-fips.us-east-1.amazonaws.com",
    "169.254.169.254",
]
THEIRS = [
    "s3-evil-1234.us-east-1.elb.amazonaws.com",
    "s3evil1234.execute-api.us-east-1.amazonaws.com",
    "evil.example",
    "sts-1.elb.us-east-1.amazonaws.com",
    "portal-1.us-east-1.elb.amazonaws.com",
    "s3.evil.us-east-1.elb.amazonaws.com",
    "s3.amazonaws.com.evil.example",
    "evils3.amazonaws.com.evil",
    "s3xamazonaws.com",
    "ec2-1-2-3-4.compute-1.amazonaws.com",
    "s3.us-east-1.cs.amazonlightsail.com",
    "s3-website.evil.compute.amazonaws.com",
    "169.254.169.253",
    "oidc.evil.amazonaws.com",
    "s3-evil-1234.eusc-de-east-1.elb.amazonaws.eu",
    "vpce-1.vpce-svc-1.us-east-1.vpce.amazonaws.com",
    "sso.evil-1234.us-east-1.elb.amazonaws.com",
]


@pytest.mark.attack("31 a host below a provider's that anybody can rent", "any command", "refused")
def test_only_the_stores_own_hosts_are_let_through():
    with door.shut():
        refuse_files("s3://bucket/m", tracking_uri="http://registry")
        lets = door._door.lets
        assert [host for host in OURS if not lets(host, 443)] == []
        assert [host for host in THEIRS if lets(host, 443)] == []


#: what an author may name as the place of a version's files
SPELLED = ["s3://{}@bucket/m", "s3://user:pw@{}/m", "s3://{}/m", "s3://bucket:{}/m", "s3://bucket/../m", "s3://../m"]
SPELLED += ["s3://./m", "s3://bucket/%2e%2e/x", "s3://bucket/m?endpoint_url=http://{}", "s3://bucket/m#http://{}"]
SPELLED += ["s3://bucket\\@{}/m", "s3://arn:aws:s3:us-east-1:1:accesspoint/x", "s3://[::1]/m", "s3://bucket\n.{}/m"]
SPELLED += ["s3://bücket/m", "s3:///m", "s3:m", "s3:/bucket/m", "s3://127.0.0.1/m", "s3://b%40{}/m", "s3+http://{}/m"]
SPELLED += ["s3://evil.example/m", "S3://BUCKET/m", "s3://bucket/m;x", "s3://bucket//m", "s3n://{}/m", "s3a://{}/m"]


@pytest.mark.attack(
    "31 a bucket whose name is another host", "verify, check, sign, doctor", "the operator's store alone"
)
@pytest.mark.parametrize("reads", ["verifier", "checker"])
def test_whatever_a_bucket_is_called_the_operators_store_is_asked(store, stores, tmp_path, monkeypatch, reads):
    evil = stores[1]
    asked_names = []
    look_up = door._lookup
    monkeypatch.setattr(
        door, "_lookup", lambda host, *a, **k: asked_names.append(host) or look_up("127.0.0.1", *a, **k)
    )
    for number, spelled in enumerate(SPELLED):
        with contextlib.suppress(PrivgateError):
            uri = spelled.format(evil.host)
            verifier(uri) if reads == "verifier" else checker(uri, folder=tmp_path / str(number))
    assert evil.asked == []
    assert set(asked_names) <= {"127.0.0.1"}
    assert {headers["Host"] for _, headers in store.asked} == {store.host}
    assert not [path for path, _ in store.asked if re.search(r"/\.\.?([/?]|$)", path)]


@pytest.mark.attack("31 S3 redirects to an author's host", "verify, check, sign", "not followed")
@pytest.mark.parametrize("status", [301, *(pytest.param(s, marks=pytest.mark.slow) for s in (302, 307, 308, 400))])
@pytest.mark.parametrize("reads", ["verifier", "checker"])
def test_no_redirect_of_a_store_is_followed_elsewhere(store, stores, tmp_path, status, reads):
    evil = stores[1]

    def away(handler, _):
        body = (
            f"<Error><Code>PermanentRedirect</Code><Endpoint>{evil.host}</Endpoint><Region>eu-west-1</Region></Error>"
        )
        handler.give(status, body.encode(), Location=f"http://{evil.host}/bucket", x_amz_bucket_region=f"{evil.host}/#")
        return True

    store.answer = away
    with pytest.raises(PrivgateError):
        verifier() if reads == "verifier" else checker(folder=tmp_path / "m")
    assert evil.asked == []


@pytest.mark.attack("31 a file or a variable names the endpoint", "verify", "the operator's, vetted")
def test_an_endpoint_of_a_file_is_asked_only_where_the_operator_lists_it(store, stores, tmp_path, monkeypatch):
    other = stores[1]
    monkeypatch.delenv("MLFLOW_S3_ENDPOINT_URL")
    (tmp_path / "config").write_text(f"[default]\nendpoint_url = http://{other.host}\n")
    with door.shut(), pytest.raises(RegistryError, match=door.PLACES):
        verifier()
    assert other.asked == []
    monkeypatch.setenv(door.PLACES, f"http://{other.host}/")
    with door.shut():
        assert verifier()
    monkeypatch.delenv(door.PLACES)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://{store.host}")
    with door.shut():
        assert verifier()
    assert store.asked


@pytest.mark.attack("31 hosts that begin with the bucket", "verify", "refused in one sentence")
def test_a_virtual_host_of_an_endpoint_is_none_of_the_operators(store, tmp_path, monkeypatch):
    (tmp_path / "config").write_text("[default]\ns3 =\n  addressing_style = virtual\n")
    monkeypatch.setenv("MLFLOW_S3_ENDPOINT_URL", f"http://localhost:{store.server_port}")
    with door.shut(), pytest.raises(RegistryError, match=rf"'evil\.localhost.*{door.PLACES}"):
        verifier("s3://evil/m")
    assert store.asked == []


@pytest.mark.attack("31 a store whose certificate nobody vouches for", "verify", "refused")
def test_a_store_without_a_certificate_that_counts_is_not_read(store, tmp_path, monkeypatch):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(_of_nobody(tmp_path / "own.pem"))
    store.socket = made.wrap_socket(store.socket, server_side=True)
    monkeypatch.setenv("MLFLOW_S3_ENDPOINT_URL", f"https://{store.host}")
    with door.shut(), pytest.raises(RegistryError, match="SSL"):
        verifier()
    assert store.asked == []


def _of_nobody(path):
    """Write a key and a certificate that it signed itself."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "s3")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1)).sign(
        key, hashes.SHA256()
    )
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(key.private_bytes(*form) + made.public_bytes(form[0]))
    return path


# what comes back

ODD = ["../x", "a/../../x", "/x", "//tmp/x", "./x", "a//b", "a\nb", "a\0b", "a\x1bb", "a/..", "\u202ea"]


@pytest.mark.attack("31 keys that climb, or that no file can have", "verify", "refused")
@pytest.mark.usefixtures("one_client")
def test_a_key_that_no_file_of_a_model_has_is_refused(store):
    for key in ODD:
        store.files = {**HONEST, f"m/{key}": b"evil"}
        with pytest.raises(SubjectError, match="no file of a model"):
            BucketFiles("s3://bucket/m")


@pytest.mark.attack("31 keys that climb, or that no file can have", "check, sign", "nothing outside")
def test_what_mlflow_downloads_stays_in_its_folder(store, tmp_path):
    for number, key in enumerate(ODD):
        store.files = {**HONEST, f"m/{key}": b"evil"}
        place = tmp_path / str(number) / "a" / "b"
        place.mkdir(parents=True)
        with contextlib.suppress(PrivgateError):
            download("s3://bucket/m", place, tracking_uri="http://registry")
        outside = [p for p in place.parents[1].rglob("*") if p.is_file() and not p.is_relative_to(place)]
        assert outside == [], key
    assert not list(tmp_path.glob("x"))


@pytest.mark.attack("31 a file and a folder of one name", "verify --to", "one sentence")
def test_a_file_that_is_a_folder_too_is_an_error_of_the_file_system(store, tmp_path):
    store.files["m/data"] = b"both"
    files = BucketFiles("s3://bucket/m")
    with pytest.raises((OSError, RegistryError)):  # who hands files over makes one sentence of it
        files.copy_to(tmp_path)


@pytest.mark.attack("31 a list that leaves out or adds a file", "verify", "another digest")
def test_a_list_decides_what_is_compared(store):
    true = digest.of_manifest(verifier())
    for change in ({"m/more.py": b"evil"}, {"m/data/weights.json": b"2"}, {"m/MLmodel/": b""}):
        store.files = HONEST | change
        assert (digest.of_manifest(verifier()) == true) == (change == {"m/MLmodel/": b""})
    store.files = {"m/MLmodel": HONEST["m/MLmodel"]}
    assert digest.of_manifest(verifier()) != true


@pytest.mark.attack("31 a file that changes between two reads", "verify --to", "the second is what is compared")
def test_what_is_handed_over_is_what_was_digested(store, tmp_path):
    """``verify --to`` digests the copy that it hands over, so the store may change whenever it likes."""
    files, true = BucketFiles("s3://bucket/m"), verifier()
    assert files.digests() == true
    store.files["m/data/weights.json"] = b"stolen"
    (tmp_path / "copy").mkdir()
    files.copy_to(tmp_path / "copy")
    assert FolderFiles(tmp_path / "copy").digests() != true


@pytest.mark.attack("31 an answer cut short", "verify, check", "one sentence")
@pytest.mark.parametrize("reads", ["verifier", "checker"])
def test_an_answer_cut_short_is_no_file(store, tmp_path, reads):
    def short(handler, query):
        if "prefix" in query or handler.command == "HEAD":
            return False
        handler.give(200, b"1", length=1000)
        return True

    store.answer = short
    with pytest.raises(RegistryError):
        verifier() if reads == "verifier" else checker(folder=tmp_path / "m")


@pytest.mark.attack("31 a list that never ends", "verify", "one sentence")
@pytest.mark.parametrize("what", ["pages", "the same page", "names"])
@pytest.mark.usefixtures("one_client")
def test_a_list_ends(store, monkeypatch, what):
    monkeypatch.setattr(stored_files, "_MOST_FILES", 20)
    count = iter(range(10_000))

    def endless(handler, query):
        mark = "x" if what == "the same page" else str(next(count))
        store.files = {f"m/{i}": b"" for i in range(100)} if what == "names" else {}
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{mark}</NextContinuationToken>"
        handler.give(200, handler.listed(query, more))
        return True

    store.answer = endless
    with pytest.raises(PrivgateError):
        BucketFiles("s3://bucket/m")
    assert len(store.asked) < 50


@pytest.mark.attack("31 an answer that is no list", "verify, check", "one sentence")
@pytest.mark.usefixtures("one_client")
@pytest.mark.parametrize("reads", ["verifier", "checker"])
def test_an_answer_that_is_no_list_is_one_sentence(store, tmp_path, reads):
    entity = b"<!DOCTYPE x [<!ENTITY a SYSTEM 'file:///etc/passwd'>]><x>&a;</x>"
    for number, body in enumerate((b"", b"<html>", b"{}", entity)):
        store.answer = lambda handler, _, body=body: handler.give(200, body) or True
        try:
            found = verifier() if reads == "verifier" else checker(folder=tmp_path / str(number))
        except PrivgateError as exc:
            found = str(exc)
        assert found == {} or (found and "root:" not in found)  # no file is no model: nothing was ever signed of it
