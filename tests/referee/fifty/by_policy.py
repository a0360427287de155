"""Policies that must not let a model go: exceptions that one person grants himself, limits that nothing exceeds."""

import datetime as dt
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.naive_bayes import CategoricalNB
from sklearn.tree import DecisionTreeClassifier

from fifty import truth
from fifty.by_controls import noisy
from fifty.catalogue import HEAD, Trial, case, variants
from privgate import Domain, Recipe, Subject, TrainingData
from privgate.run.run import Budget

DIGEST = "sha256:" + "a" * 64
MODEL = "credit"
#: zero-width space: invisible, and another text
INVISIBLE = "\u200b"


def risky() -> tuple[Any, Any]:
    """Return a smoothed classifier whose worst change, over the whole domain, is 1.66, and that truth."""
    rng = np.random.default_rng(4)
    y = (rng.random(80) < 0.4).astype(int)
    sizes = (3, 4, 2)
    X = np.column_stack([(rng.integers(0, v, 80) + y) % v for v in sizes])
    X[:, 1] = np.minimum(X[:, 1], 2)
    X[0, 1] = 3
    made = CategoricalNB(alpha=0.2, min_categories=list(sizes))
    found = float(truth.leave_one_out(truth.trainer(made), X, y, truth.enumerated(sizes)).max())
    subject = Subject.local(
        Recipe(made, seed=1), TrainingData(X, y, domain=Domain(categories=sizes), one_record_each=True), name=MODEL
    )
    return replace(subject, digests={**subject.digests, "model": DIGEST}), found


def waiver(
    rule: str = "dtp",
    *,
    ceiling: float = 2.0,
    asked: str = "ann",
    approved: str = "bob",
    begins: int = -1,
    days: int = 60,
) -> str:
    """Return a waiver that begins so many days from now."""
    first = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=begins)
    last = first + dt.timedelta(days=days)
    return (
        f"  - rule: {rule}\n    model: {MODEL}\n    version: {DIGEST}\n    ceiling: {ceiling}\n    reason: a pilot\n"
        f'    requester: "{asked}"\n    approver: "{approved}"\n    granted: {first}\n    expires: {last}\n'
    )


def written(folder: Path, rules: str, *waivers: str, extends: str = "", name: str = "own") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = HEAD.format(name=name) + (f"extends: {extends}\n" if extends else "") + "rules:\n" + rules
    if waivers:
        text += "waivers:\n" + "".join(waivers)
    (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder / f"{name}.yaml"


DTP = "  - {metric: dtp, max: 1}\n"


def one_person(folder: Path, *, asked: str, approved: str) -> Trial:
    subject, found = risky()
    return Trial(written(folder, DTP, waiver(asked=asked, approved=approved)), lambda: subject, lambda: found, 1.0)


variants(
    one_person,
    "a waiver by one person",
    approve=False,
    because="every question asked of every refit: 1.66 where 1 is allowed; who asks for the waiver and who approves it "
    "are one person, written in two ways that look alike",
    invisible={"asked": "ann", "approved": "ann" + INVISIBLE},
    composed={"asked": unicodedata.normalize("NFC", "Zoë"), "approved": unicodedata.normalize("NFD", "Zoë")},
    capitals={"asked": "ann", "approved": "ANN"},
    wide={"asked": "ann", "approved": "\uff41\uff4e\uff4e"},
)


@case("honest", approve=True, because="1.66 is above the rule's 1, but two people have waived it up to 2 for 60 days")
def two_people(folder: Path) -> Trial:
    subject, found = risky()
    return Trial(written(folder, DTP, waiver()), lambda: subject, lambda: found, 2.0)


@case("a waiver without end", approve=False, because="two waivers in a row last 178 days where 90 are allowed")
def adjoining(folder: Path) -> Trial:
    subject, found = risky()
    path = written(folder, DTP, waiver(days=89), waiver(begins=89, days=88))
    return Trial(path, lambda: subject, lambda: found, 1.0)


@case("a waiver without end", approve=False, because="1.66 is above the limit, and the waiver begins tomorrow")
def not_yet(folder: Path) -> Trial:
    subject, found = risky()
    return Trial(written(folder, DTP, waiver(begins=1)), lambda: subject, lambda: found, 1.0)


@case(
    "a waiver above a tighter rule",
    approve=False,
    because="the child's limit is .3; the parent's waiver up to 2 was granted against a limit of 1, not against this "
    "one",
)
def inherited(folder: Path) -> Trial:
    subject, found = risky()
    written(folder, DTP, waiver(), name="parent")
    path = written(folder, "  - {metric: dtp, max: 0.3}\n", extends="parent.yaml", name="child")
    return Trial(path, lambda: subject, lambda: found, 0.3)


@case(
    "a waiver of everything",
    approve=False,
    because="a full-grown tree on noisy labels is found out in far more than 60 of 100 cases; a ceiling of 1 on an "
    "accuracy is no ceiling",
)
def ceiling_of_one(folder: Path) -> Trial:
    X, y = noisy(200, 61, 4)
    fresh, fresh_y = noisy(400, 62, 4)
    data = TrainingData(X, y, candidates=(fresh[:200], fresh_y[:200]), one_record_each=True)
    made = DecisionTreeClassifier(random_state=0)
    subject = Subject.local(Recipe(made, seed=0), data, name=MODEL)
    subject = replace(subject, digests={**subject.digests, "model": DIGEST})
    model = made.fit(X, y)
    inside, outside = truth.own_probability(model, X, y), truth.own_probability(model, fresh, fresh_y)
    found = truth.held_out_accuracy(inside, outside)
    rule = "  - {metric: attack_accuracy, attack: yeom_threshold_known, max: 0.6}\n"
    path = written(folder, rule, waiver("attack_accuracy", ceiling=1.0))
    return Trial(path, lambda: subject, lambda: found, 0.6, Budget(shadow_models=16))


@case(
    "an unknown metric", approve=False, because="nobody measures such a thing, so that nothing was shown about anybody"
)
def unknown_metric(folder: Path) -> Trial:
    subject, _ = risky()
    return Trial(written(folder, "  - {metric: attack_precision, max: 1}\n"), lambda: subject, lambda: np.inf, 1.0)


@case(
    "a policy that cannot block",
    approve=False,
    because="its only rule warns and never blocks, while the worst change is 1.66",
)
def warning_only(folder: Path) -> Trial:
    subject, found = risky()
    path = written(folder, "  - {metric: dtp, max: 1, mode: warn}\n")
    return Trial(path, lambda: subject, lambda: found, 1.0)


def endless(folder: Path, *, rule: str) -> Trial:
    """Return a full-grown tree under a limit that nothing exceeds; whoever approves it has to say so."""
    X, y = noisy(120, 63, 4)
    fresh, fresh_y = noisy(120, 64, 4)
    data = TrainingData(X, y, candidates=(fresh, fresh_y), one_record_each=True)
    if rule.startswith("metric: dtp"):
        subject, _ = risky()
    else:
        subject = Subject.local(Recipe(DecisionTreeClassifier(random_state=0), seed=0), data)
    path = written(folder, f"  - {{{rule}}}\n")
    return Trial(path, lambda: subject, lambda: np.inf, 1.0, Budget(shadow_models=16), unless="cannot refuse")


variants(
    endless,
    "a limit that nothing exceeds",
    approve=False,
    because="no value that can be measured exceeds the limit, so that an approval shows nothing; it is right only "
    "where lint or the verdict says that the rule cannot refuse",
    dtp_1e308={"rule": "metric: dtp, max: 1.0e+308"},
    accuracy_one={"rule": "metric: attack_accuracy, attack: yeom_threshold_known, max: 1.0"},
    smallest_quantile={"rule": "metric: pdtp, max: 1, aggregate: quantile, q: 0.01"},
)
