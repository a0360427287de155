"""The same verdict for other readers: in-toto's evaluation result, and the files as OpenSSF's model signing signs them.

Nothing in privgate believes either: the guard and ``verify`` read the SLSA summary of ``privgate.guard.statement``.
"""

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privgate.errors import StatementError, UsageError
from privgate.guard.statement import PAYLOAD_TYPE, STATEMENT_TYPE, VERIFIER, Claims, pae, payload, stamp
from privgate.outcome import Outcome
from privgate.version import __version__

# Source: the predicate proposed to in-toto in its issue 565 and pull request 575, version 0.1. It is not merged: until
# it is, the URI may still change, and stands here alone.

EVALUATION_TYPE = "https://in-toto.io/attestation/eval-result/v0.1"
#: what is claimed beside the rules: a reader who looks at one claim must not take it for an approval
APPROVED = "privgate/approved"


def evaluation(claims: Claims, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a verdict as in-toto's evaluation result: an in-toto statement, not signed yet.

    Parameters
    ----------
    claims : Claims
        What the verdict statement says.
    document : mapping
        The report, whose numbers were judged again.

    Returns
    -------
    dict
        One claim for each rule that limits a number, and one for the whole verdict. ``passed`` is false for all that
        is not passed: waived, warned or undecided too. A rule that another one answered for makes no claim.
    """
    told = [
        {
            "metric": f"privgate/{f['rule']}",
            "comparator": "<=" if f["direction"] == "max" else ">=",
            "threshold": _decimal(f["limit"]),
            "passed": f["outcome"] == "passed",
        }
        for f in document["findings"]
        if f["metric"] and _limits(f["limit"]) and f.get("applies", True) and f["outcome"] != Outcome.NOT_NEEDED
    ]
    whole = {"metric": APPROVED, "comparator": ">=", "threshold": "1", "passed": claims.passed}
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": f"models:/{claims.name}/{claims.version}", "digest": {"sha256": _hex(claims.files)}}],
        "predicateType": EVALUATION_TYPE,
        "predicate": {
            "verifier": {"id": VERIFIER},
            "evaluatedAt": stamp(claims.decided),
            "suite": {"name": claims.policy, "version": claims.policy_digest},
            "claims": [whole, *told],
            "sampleSize": int(document["evidence"]["subject"]["n_units"]),
            "commitments": {
                "model": {"alg": "sha256", "value": _hex(claims.files), "salted": False},
                "dataset": {"alg": "sha256", "value": _hex(claims.digests["data"]), "salted": False},
            },
            # whoever signs belongs to the house that trained: a third party's word would need a third party
            "assuranceLevel": "self_attested",
            "subjectProfile": "release-gate",
            "harness": {"name": "privgate", "version": __version__},
        },
    }


def _limits(limit: Any) -> bool:
    return isinstance(limit, int | float) and not isinstance(limit, bool) and math.isfinite(limit)


def _decimal(limit: float) -> str:
    """Return a limit as a decimal string without an exponent, exactly as short as the number is read back."""
    text = repr(limit)
    return format(float(text), "f") if "e" in text and float(format(float(text), "f")) == limit else text


def _hex(digest: str) -> str:
    return digest.rpartition(":")[2]


# The model's files as OpenSSF's model signing writes them: a Sigstore bundle over one digest a file.
#
# Source: model-signing 1.1, predicate https://model_signing/signature/v1.0. Its tools know keys on elliptic curves
# only, so the key is another than the one that signs verdicts.

SIGNATURE_TYPE = "https://model_signing/signature/v1.0"
BUNDLE_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_CURVES = {"secp256r1": "SHA256", "secp384r1": "SHA384", "secp521r1": "SHA512"}


def bundle_key(path: Path) -> Any:
    """Return the private key on an elliptic curve that a file holds, by which model signing's tools verify.

    Raises
    ------
    UsageError
        It cannot be read, others may read it, or it is no unencrypted key on the curve P-256, P-384 or P-521.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    from privgate.guard.signer import private_bytes

    content = private_bytes(path)
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, EllipticCurvePrivateKey) or key.curve.name not in _CURVES:
        raise UsageError(
            f"{path} holds no unencrypted key that model signing knows: make one by "
            "openssl ecparam -name prime256v1 -genkey -noout"
        )
    return key


def bundle(name: str, files: Mapping[str, str], key: Any) -> str:
    """Return a Sigstore bundle over a model's files, which ``model_signing verify key`` verifies.

    Parameters
    ----------
    name : str
        The model's, a hint for readers.
    files : mapping of path -> sha256
        Every file of the served folder; all are signed and none is ignored.
    key : EllipticCurvePrivateKey
        From ``bundle_key``.
    """
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    held = [{"name": path, "algorithm": "sha256", "digest": _hex(files[path])} for path in sorted(files)]
    if not held:
        raise StatementError(f"{name} has no file to sign")
    root = hashlib.sha256(b"".join(bytes.fromhex(h["digest"]) for h in held)).hexdigest()
    body = payload(
        {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": name, "digest": {"sha256": root}}],
            "predicateType": SIGNATURE_TYPE,
            "predicate": {
                "serialization": {
                    "method": "files",
                    "hash_type": "sha256",
                    "allow_symlinks": False,
                    "ignore_paths": [],
                },
                "resources": held,
            },
        }
    )
    signature = key.sign(pae(PAYLOAD_TYPE, body), ec.ECDSA(getattr(hashes, _CURVES[key.curve.name])()))
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return json.dumps(
        {
            "mediaType": BUNDLE_TYPE,
            "verificationMaterial": {"publicKey": {"hint": hashlib.sha256(public).hexdigest()}, "tlogEntries": []},
            "dsseEnvelope": {
                "payload": base64.b64encode(body).decode(),
                "payloadType": PAYLOAD_TYPE,
                "signatures": [{"sig": base64.b64encode(signature).decode(), "keyid": ""}],
            },
        }
    )
