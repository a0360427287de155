"""No registry and no command line: a verdict, the table of people, a report.

Run it with ``python examples/python-only/run.py [FOLDER]``; it ends with exit code 0.
"""

import sys
from pathlib import Path

from sklearn.datasets import load_wine
from sklearn.naive_bayes import GaussianNB

from privgate import Fleet, Recipe, Subject, TrainingData, evaluate


def main(folder: Path) -> int:
    X, y = load_wine(return_X_y=True)
    subject = Subject.local(
        Recipe(GaussianNB(var_smoothing=0.1), seed=7), TrainingData(X, y, one_record_each=True), name="wine"
    )
    with Fleet(jobs=1, ledger=folder / "ledger") as fleet:
        verdict = evaluate("pdtp-1", subject, fleet=fleet)
    print(verdict)
    print(verdict.records["pdtp"].describe())
    verdict.plot().save(folder / "people.svg")
    verdict.report(folder / "report", purpose="example", owner="nobody")
    return int(verdict.exit_code)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/python-only")))
