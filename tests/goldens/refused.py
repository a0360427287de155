"""Judge every subject of the goldens that a theorem refuses, and print those that are approved: none may be.

Most are refused for certain, by a question that breaks the rule: a lie about upper limits alone frees none of them. So
some are judged at limits that their lower limits keep and their upper ones do not: whatever lowers these frees them.

``tests/goldens/outside.py`` runs this once for each change of the package.
"""

import json
import sys
import tempfile
from pathlib import Path

import adapters

POLICY = """\
schema: privgate/policy/v1
name: refused
version: "1"
rules:
  - metric: dtp
    max: {limit}
"""
#: whose rule is in doubt -> limit between what is seen and what the theorem says, nats
DOUBTED = {"ball_logistic": 0.08, "newton": 0.1525}


def main() -> int:
    """Return how many are approved, and print it with the number of how many that came to an end."""
    import privgate
    from privgate.training.fleet import Fleet

    rows = [
        json.loads(line) for line in (Path(__file__).parent / "data" / "certificates.jsonl").read_text().splitlines()
    ]
    approved, ended = [], 0
    with tempfile.TemporaryDirectory() as place, Fleet(jobs=1, ledger="none", isolate="none") as fleet:
        for row in rows:
            name, kind = row["row"].split()
            if kind != "refused" and name not in DOUBTED:
                continue
            policy = Path(place, "policy.yaml")
            policy.write_text(POLICY.format(limit=row["limit"] if kind == "refused" else DOUBTED[name]))
            try:
                verdict = privgate.evaluate(policy, adapters.instance(name, row["seed"]), fleet=fleet)
            except Exception as exc:  # noqa: BLE001  a change may break anything: what ends so approves nobody
                print(name, "ended by", type(exc).__name__, exc, flush=True)
                continue
            ended += 1
            print(name, verdict.outcome, flush=True)
            approved += [name] * verdict.approved
    print(len(approved), "approved of", ended)
    return len(approved)


if __name__ == "__main__":
    sys.exit(main())
