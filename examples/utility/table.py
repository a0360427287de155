"""From rows to the table in the documentation."""

from collections.abc import Mapping, Sequence
from typing import Any

HEADINGS = (
    "data", "learner", "people", "accuracy", "log loss", "AUC", "DTP proven, nats", "within 1", "seen above 1",
    "attack AUC", "TPR at 1 %", "training, s", "proof, s a person", "deletion, s",
)  # fmt: skip
ATTACKS = {"lira_online": "LiRA", "rmia": "RMIA"}


def written(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table as Markdown; what could not be measured is said below it."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "| --- | --- |" + " ---: |" * (len(HEADINGS) - 2)]
    lines += [_line(r) for r in rows]
    gaps = [f"- {r['data']}, {r['learner']}: {part}: {why}" for r in rows for part, why in r["problems"].items()]
    return "\n".join(lines + (["", "Not measured:", "", *gaps] if gaps else [])) + "\n"


def _line(r: Mapping[str, Any]) -> str:
    use, proof, attack, deletion = (r.get(part) for part in ("use", "proof", "attack", "deletion"))
    cells = [r["data"], r["learner"], r.get("train", "")]
    cells += [_with_error(use[k]) for k in ("accuracy", "log_loss", "auc")] if use else [""] * 3
    cells += _proof(r["guarantee"], proof)
    cells += [f"{attack['auc']:.3f} ({ATTACKS[attack['attack']]})", f"{attack['tpr']:.3f}"] if attack else [""] * 2
    cells += [_seconds(use["training"]) if use else ""]
    cells += [_seconds(proof["seconds"] / proof["people"]) if proof and proof["people"] else ""]
    cells += [_seconds(deletion["seconds"]) if deletion else ""]
    return "| " + " | ".join(map(str, cells)) + " |"


def _proof(guarantee: str, proof: Mapping[str, Any] | None) -> list[str]:
    """Return what is proven, and how many people are within the limit for certain, and beyond it."""
    if proof is None:
        return [""] * 3
    if not proof["people"]:
        return [f"none; {guarantee}", "", ""]
    if not proof["theorems"]:
        return ["none", "", f"{proof['broken']} of {proof['people']}"]
    upper = "no limit" if proof["upper"] is None else f"{proof['upper']:.2f}"
    return [upper, f"{proof['within']} of {proof['people']}", f"{proof['broken']} of {proof['people']}"]


def _with_error(value: Sequence[float]) -> str:
    mean, error = value
    return f"{mean:.3f}" if error != error else f"{mean:.3f} ± {error:.3f}"  # noqa: PLR0124  NaN alone differs from itself


def _seconds(value: float) -> str:
    return f"{value:.2g}"
