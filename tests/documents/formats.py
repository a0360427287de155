"""Every file format that privgate reads, with an honest example, how it is read, and how it is mutated."""

import base64
import dataclasses
import hashlib
import hmac
import json
import random
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace

from privgate import digest
from privgate import report as rendering
from privgate.cli.report import read as report_file
from privgate.controls import suites
from privgate.errors import StatementError
from privgate.evidence import Evidence, Measurement, Remembered, RunPart
from privgate.guard import keys as truststore
from privgate.guard import signing, statement, verification
from privgate.guard.config import Guard
from privgate.guard.keys import TrustStore, fresh_key, seal
from privgate.guard.statement import PAYLOAD_TYPE, Claims, Envelope
from privgate.policy import Policy
from privgate.registry import load, mlmodel
from privgate.registry import training_data as stored_data
from privgate.serve import refuse_delivery
from privgate.subject.recipe import Recipe
from privgate.subject.release import Release
from privgate.training.ledger import Ledger
from tests.report import real_runs

GUARD = """\
schema: privgate/guard/v2
registry: test-registry
trust: trust.json
releases:
  - {models: "*", aliases: production, task: classification, policy: dtp-1}
protected:
  aliases: [production]
  stages: [Production]
  models: ["prod.*"]
accept_advisory: false
accept_unboxed: false
check_files: false
"""
POLICY = """\
schema: privgate/policy/v1
name: mine
version: "3"
description: for the test
extends: dtp-1
audit: {min_coverage: 0.9, min_candidates: 200}
valid_days: 90
rules:
  - {metric: dtp, max: 0.5, reason: "half"}
  - metric: attack_accuracy
    attack: any
    max: 0.6
  - {metric: attack_tpr, at_fpr: 0.1, max: 0.2, id: gap}
never_waivable: [gap]
waivers:
  - rule: dtp
    model: credit
    version: "sha256:%s"
    ceiling: 0.7
    reason: agreed
    requester: Ann Lee
    approver: Bob Ray
    granted: 2026-01-02
    expires: 2026-02-02
""" % ("a" * 64)
MLMODEL = """\
artifact_path: model
flavors:
  python_function:
    env: {conda: conda.yaml, virtualenv: python_env.yaml}
    loader_module: mlflow.sklearn
    model_path: model.pkl
    predict_fn: predict_proba
    python_version: 3.11.9
  sklearn:
    code: null
    pickled_model: model.pkl
    serialization_format: cloudpickle
    sklearn_version: 1.5.0
mlflow_version: 3.17.2
model_id: m-0123456789abcdef
model_size_bytes: 1024
signature:
  inputs: '[{"type": "double", "name": "x"}]'
  params: null
utc_time_created: '2026-01-02 03:04:05.678901'
"""
SUITE = {
    "name": "ages",
    "expectations": [
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "age", "min_value": 0, "max_value": 120}},
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "age"}, "meta": {"note": "x"}},
    ],
}
RECIPE = {
    "schema": "privgate/logged-recipe/v1",
    "logged_at": "2026-01-02T03:04:05+00:00",
    "model": {"files": {"MLmodel": "sha256:" + "a" * 64}},
    "recipe": {
        "schema": "privgate/recipe/v1", "seed": 7, "predict": None, "kind": "function", "fit": "train:fit",
        "dp": {"mechanism": "dp-sgd", "adjacency": "add_remove", "epsilon": 1.0, "delta": 1e-6},
        "params": {"depth": 3, "rate": 0.1},
    },
    "recipe_digest": "sha256:" + "b" * 64,
    "sources": {"folder": "privgate/src/b", "files": {"train.py": "sha256:" + "c" * 64}},
    "release": {"form": "label", "step": 0.01, "k": 1, "temperature": 1.0},
    "data": {"kind": "loader", "reference": "shop:people", "options": {"year": 2026}, "digest": "sha256:" + "d" * 64},
    "environment": {"python": "3.11.9", "packages": {"numpy": "2.0.0"}},
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Format:
    """A file format.

    ``slow`` are those whose answer takes tenths of a second, because a page is drawn.
    ``read`` takes the mutated bytes and returns whether something was approved that should not be; whatever it raises
    on purpose is an answer. ``tree`` is the example as plain values where it may be changed value by value.
    """

    name: str
    example: bytes
    read: Callable[[bytes], bool]
    tree: object = None
    slow: bool = False


#: a run that believed nothing
TRAINED = Remembered(signable=True, trained=100, remembered=0, compared=0, different=0, noisy=0)


class World:
    """A signer, a stranger, a folder; what the formats of a release have in common."""

    def __init__(self, folder):
        self.folder = folder
        self.signer, self.stranger = truststore.new_key(), truststore.new_key()
        self.policy = Policy.load("dtp-1")
        self.now = statement.now().replace(microsecond=0)
        self.store = TrustStore((fresh_key(self.signer.public_key, days=90, models=("*",)),))
        self.store.save(folder / "trust.json")
        self.claims = Claims(
            registry="test-registry", name="credit", version="3", source="models:/m-1", storage="s3://b/m-1",
            model_id="m-1", run_id="", versions=3,
            created=1700, files=_digest("f"), digests={"model": _digest("1")}, policy="dtp-1",
            policy_digest=self.policy.digest, report=_digest("b"), evidence=_digest("e"), outcome="failed",
            passed=False, decided=self.now, signed=self.now, expires=self.now + timedelta(days=30),
            targets=(("credit", "production"),), advisory=False, isolation="bubblewrap 0.8.0",
        )  # fmt: skip
        self.row = verification.Row("credit", "3", "models:/m-1", "s3://b/m-1", 1700)
        self.terms = verification.Terms("test-registry", self.policy.digest, "dtp-1")

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return path

    def counts(self, text, store=None):
        verification.check(text, store or self.store, self.row, self.terms, target="production", now=self.now)
        return True

    def signed(self, payload):
        """Return the envelope of any payload, signed by the key that counts."""
        envelope = Envelope(payload, PAYLOAD_TYPE, {})
        envelope.sign(self.signer)
        return envelope.text()

    def report(self):
        """Return a report whose numbers block."""
        subject = {"name": "credit", "version": "3", "digests": {"files": _digest("f")}}
        requests = [rule.request() for rule in self.policy.rules]
        measured = {r: Measurement(r, 9.0, 8.0, 10.0, n=50, population=50) for r in requests}
        evidence = Evidence(subject, (), measured, run=RunPart(remembered=TRAINED))
        findings = self.policy.judge(evidence, today=self.now.date()).findings
        told = [{"rule": f.rule, "outcome": str(f.outcome), "message": f.message, "waiver": ""} for f in findings]
        return {
            "schema": "privgate/report/v2", "observed": False,
            "policy": {"name": "dtp-1", "digest": self.policy.digest},
            "decided_at": self.now.isoformat(), "evidence": evidence.payload(), "outcome": "failed",
            "subject": subject, "findings": told,
        }  # fmt: skip

    def judged(self, content):
        """Return whether a signer would sign the report as an approval."""
        document = signing.read_document(content)
        signing.judged_again(document, self.policy)
        return document["outcome"] in {"passed", "warned"}

    def subject(self, content):
        """Read a recipe as loading a subject does, its own digest made right: whoever writes it can do so."""
        try:
            document = json.loads(content)
            document["digest"] = digest.of_json({k: v for k, v in document.items() if k != "digest"})
            content = json.dumps(document).encode()
        except (ValueError, TypeError, RecursionError):
            pass
        (self.folder / "privgate").mkdir(exist_ok=True)
        self.write("privgate/recipe.json", content)
        document = load.read_recipe(self.folder, "models:/credit/3")
        read = Recipe.read(document["recipe"], self.folder / "absent")
        assert read.digest
        assert Release.from_payload(dict(document["release"]))
        load.verify_sources(self.folder, {**document, "sources": {**document["sources"], "files": {}}})
        stored_data.read(SimpleNamespace(tracking_uri=None), document["data"], self.folder / "data")
        return False


def _digest(letter):
    return "sha256:" + letter * 64


def formats(folder):
    """Return every format; ``folder`` is theirs."""
    world = World(folder)
    trusted = json.loads((folder / "trust.json").read_bytes())
    honest = {"report": world.report(), "recipe": RECIPE, "suite": SUITE, "trust": trusted,
              "verdict": world.claims.summary("1")}  # fmt: skip
    approval = dataclasses.replace(world.claims, passed=True, outcome="passed")
    stranger = seal(approval.summary("1"), world.stranger).text()
    refused = seal(world.claims.summary("1"), world.signer).text()
    ledger = Ledger(folder / "ledger")
    ledger.write("subject/answer", b"an answer")

    def trusting(content):
        return world.counts(stranger, TrustStore.load(world.write("trust.json", content)))

    def guarding(content):
        world.store.save(folder / "trust.json")
        guard = Guard.load(world.write("guard.yaml", content))
        guard.terms("production", "credit")
        return guard.protects_model("prod.x") and False

    def judging(content):
        policy = Policy.load(world.write("policy.yaml", content))
        return not policy.digest

    def remembering(content):
        (folder / "ledger" / "subject" / "answer").write_bytes(content)
        return Ledger(folder / "ledger").read("subject/answer") not in {None, b"an answer"}

    for name in ("model.pkl", "conda.yaml", "python_env.yaml"):
        world.write(name, b"")

    def stored(content):
        world.write("MLmodel", content)
        mlmodel.flavor_of(folder)
        return False

    text = {k: json.dumps(v).encode() for k, v in honest.items()}
    return [
        Format("policy", POLICY.encode(), judging),
        Format("suite", text["suite"], lambda c: suites.parse(c.decode(errors="replace"), "s.json") is None, SUITE),
        Format("guard", GUARD.encode(), guarding),
        Format("trust store", text["trust"], trusting, honest["trust"]),
        Format("statement", refused.encode(), lambda c: world.counts(c.decode(errors="replace")), json.loads(refused)),
        Format("signed verdict", text["verdict"], lambda c: _pass_of_a_failure(world, c), honest["verdict"]),
        Format("report, to sign", text["report"], world.judged, honest["report"]),
        Format("recipe", text["recipe"], world.subject, RECIPE),
        Format("MLmodel", MLMODEL.encode(), stored),
        Format("ledger", (folder / "ledger" / "subject" / "answer").read_bytes(), remembering),
        *_shown(world),
        *_asked_for(),
    ]  # fmt: skip


def _shown(world):
    """Return what is rendered and compared."""
    told = {kind: real_runs.document(kind) for kind in ("private", "attacked", "before", "certified")}

    def comparing(document):
        list(rendering.differences(rendering.compare(told["before"], document)))

    def rendered(*forms):
        return lambda document: [rendering.render(document, form) for form in forms]

    def given(show):
        """Read what ``privgate report`` is given, and show it."""
        return lambda content: show(report_file(world.write("report.json", content))) and False

    shown = rendered("html", "markdown", "junit")
    reports = [(f"report, to show: {k}", shown, told[k]) for k in ("private", "attacked")]
    reports += [("report, to compare", comparing, told["certified"])]
    return [Format(name, json.dumps(tree).encode(), given(show), tree, slow=True) for name, show, tree in reports]


def _asked_for():
    """Return what anybody may send to ``serve``."""

    def delivered(content):
        """Judge a delivery of which headers and body are somebody's; without the secret none counts."""
        head, _, body = content.partition(b"\n\n")
        said = {k.lower(): v for k, _, v in (line.partition(": ") for line in head.decode("latin-1").split("\n"))}
        refusal = refuse_delivery(b"a secret", said, body, now=1.8e9)
        if refusal:
            raise StatementError(refusal)
        return (said["x-mlflow-delivery-id"], said["x-mlflow-timestamp"], body) != ("d1", "1800000000", b"{}")

    sign = base64.b64encode(hmac.new(b"a secret", b"d1.1800000000.{}", hashlib.sha256).digest()).decode()
    delivery = f"x-mlflow-delivery-id: d1\nx-mlflow-timestamp: 1800000000\nx-mlflow-signature: v1,{sign}\n\n{{}}"
    return [Format("webhook", delivery.encode(), delivered)]


def _pass_of_a_failure(world, payload):
    """Whether a payload that was mutated before it was signed counts, although it differs from every honest approval.

    A signer who signs "passed" has approved; a mutation that makes exactly that is no forgery.
    """
    try:
        world.counts(world.signed(payload))
    except ValueError as exc:  # no reader of ours may raise it
        raise AssertionError from exc
    said = json.loads(payload)["predicate"]
    return said["verificationResult"] != "PASSED"


# -- mutations -----------------------------------------------------------------------------------------------------

#: what programs and people write where something else is expected, as JSON
HOSTILE = [
    b"null", b"true", b"false", b"0", b"-1", b"1e999", b"-1e999", b"1e308", b"NaN", b"Infinity", b"9" * 5000,
    b"-" + b"9" * 400, b"1" + b"0" * 30, b"9223372036854775808", b"0.1", b'""', b'"x"', b'"' + b"x" * 20_000, b'"',
    b'"\\ud800"', b'"\\u0000"', b'"9999-99-99T99:99:99Z"', b'"0001-01-01T00:00:00+23:59"',
    b'"9999-12-31T23:59:59-23:59"', b'"2026-01-01"', b'"nan"', b'"inf"', b"[]", b"{}", b"[null]", b'{"": null}',
    b"[[[[[[[[]]]]]]]]", b"[" * 900 + b"]" * 900, b"[" * 100_000, b'{"a":' * 900 + b"1" + b"}" * 900,
    b'["a", 1, null, {"b": []}]', '"é\u202e\u200b𝔘"'.encode(), b'"*"', b'"../../etc/passwd"', b'"/dev/zero"',
    b'"\\n\\r\\t"', b"3.0", b"1e5", b"010", b"0x10", b"1_000", b"yes", b"~", b"*a", b"&a x",
    b"!!python/name:os.system x", b"|\n  x", b"'", b'"', b"{", b"}", b"- - - -", b"? x", b"%TAG ! x", b"---",
    b"<<: *a", b"12:30:45", b"2026-13-45", b".inf", b".nan",
]  # fmt: skip


def mutated(made: Format, rng: random.Random) -> bytes:
    """Return a mutation of the example: of values where it is a tree, else of bytes, up to four at once."""
    if made.tree is not None and rng.random() < 0.6:
        return _of_values(made.tree, rng)
    content = made.example
    for _ in range(rng.choice((1, 1, 2, 4))):
        content = _of_bytes(content, rng)
    return content


def _of_bytes(content: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(content) + 1)
    end = min(len(content), at + rng.choice((1, 1, 2, 8, 40, 400)))
    kind = rng.randrange(8)
    if kind == 0:
        return content[:at] + content[end:]
    if kind == 1:
        return content[:end] + content[at:]
    if kind == 2:
        return content[:at] + rng.randbytes(end - at) + content[end:]
    if kind == 3:
        return content[:at]
    if kind == 4:  # a value of a line
        lines = content.split(b"\n")
        i = rng.randrange(len(lines))
        lines[i] = lines[i].partition(b":")[0] + b": " + rng.choice(HOSTILE)
        return b"\n".join(lines)
    if kind == 5:  # a line twice, elsewhere
        lines = content.split(b"\n")
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
        return b"\n".join(lines)
    if kind == 6 and at < len(content):
        return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
    return content[:at] + rng.choice(HOSTILE) + content[at:]


def _of_values(tree: object, rng: random.Random) -> bytes:
    """Replace, remove, repeat or rename one value of a tree, written as JSON."""
    marked = json.loads(json.dumps(tree))
    keys = [(holder, holder if isinstance(holder, dict) else range(len(holder))) for holder in _holders(marked)]
    places = [(holder, key) for holder, within in keys for key in within]
    holder, key = rng.choice(places)
    mark = f"\x00{rng.random()}"
    kind = rng.randrange(5)
    if kind == 0:
        del holder[key]
        return json.dumps(marked).encode()
    if kind == 1 and isinstance(holder, dict):
        holder[rng.choice(["", "schema", "x" * 500, key + " ", key.upper(), "é"])] = holder.pop(key)
        return json.dumps(marked).encode()
    if kind == 2 and isinstance(holder, dict):  # the key twice
        value = json.dumps(holder[key])
        holder[key] = mark
        name = json.dumps(key)
        return json.dumps(marked).replace(json.dumps(mark), f"{value}, {name}: {rng.choice(HOSTILE).decode()}").encode()
    if kind == 3:
        other, at = rng.choice(places)
        holder[key] = json.loads(json.dumps(other[at])) if other is not holder else [holder[key]]
        return json.dumps(marked).encode()
    holder[key] = mark
    return json.dumps(marked).encode().replace(json.dumps(mark).encode(), rng.choice(HOSTILE))


def _holders(value: object) -> list:
    if isinstance(value, dict | list) and value:
        inside = list(value.values()) if isinstance(value, dict) else value
        return [value, *(h for v in inside for h in _holders(v))]
    return []
