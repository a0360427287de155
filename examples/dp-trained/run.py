"""Judge the honest training and the three with bugs; exits 0 iff the first is approved and the others are blocked."""

import sys
from pathlib import Path

from privgate import Outcome, Policy, Recipe, Subject, evaluate
from privgate.demo import adult
from privgate.training.fleet import Fleet

HERE = Path(__file__).resolve().parent
EXPECTED = {
    "honest": (Outcome.PASSED, Outcome.WARNED),  # the data holds equal records, which is warned of
    "clipping_off": (Outcome.INCONCLUSIVE,),
    "noise_once": (Outcome.FAILED,),
    "noise_seed_reused": (Outcome.FAILED,),
}


def main():
    sys.path.insert(0, str(HERE))
    import training

    policy, data, as_expected = Policy.load(HERE / "policy.yaml"), adult.load(), True
    for name, allowed in EXPECTED.items():
        recipe = Recipe(getattr(training, name), params={"sizes": list(adult.SIZES)}, dp=training.CLAIM)
        with Fleet(ledger="none") as fleet:
            verdict = evaluate(policy, Subject.local(recipe, data, name=name), fleet=fleet)
        as_expected &= verdict.outcome in allowed
        print(f"{name}: {'approved' if verdict.approved else 'blocked'}")
        for finding in verdict.findings:
            if finding.rule.startswith(("precondition:dp", "dp_", "deletion")):
                print(f"  {finding.outcome}: {finding.message}")
    return 0 if as_expected else 1


if __name__ == "__main__":
    sys.exit(main())
