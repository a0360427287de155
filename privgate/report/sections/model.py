"""Model and release context: what was trained, from what, and what a query returns."""

from privgate.report import reading
from privgate.report.blocks import Block, Facts, Section, Text
from privgate.report.reading import Doc
from privgate.report.text import number, plain

_RELEASE = {
    "probabilities": "exact probabilities of every label",
    "rounded": "probabilities rounded to a step",
    "binned": "probabilities in bins",
    "top_k": "the most probable labels only",
    "label": "the most probable label only",
}


def section(doc: Doc) -> Section | None:
    """Return the model's facts and what the deployed model hands out."""
    s = reading.subject(doc)
    release = reading.mapping(reading.detail(doc).get("release")) or reading.mapping(s.get("release"))
    items: list[tuple[str, str]] = []
    for name, key in (
        ("Records", "n_records"),
        ("People or units", "n_units"),
        ("Labels", "n_classes"),
        ("Candidates outside the data", "n_candidates"),
        ("Parameters of the model", "n_parameters"),
    ):
        if s.get(key):
            items.append((name, number(s[key])))
    if s.get("n_parameters") and s.get("n_records"):
        items.append(("Records per parameter", number(s["n_records"] / s["n_parameters"])))
    items += _recipe(reading.mapping(s.get("recipe")))
    items += _released(release)
    items += _domain(reading.mapping(s.get("domain")))
    if not items:
        return None
    blocks: list[Block] = [Facts(items)]
    if release.get("form", "probabilities") != "probabilities" or release.get("temperature", 1) != 1:
        blocks.append(
            Text("Measured, attacks included, on what is released and on exact probabilities; the worse counts.")
        )
    return Section("model", "Model and release", blocks)


def _recipe(recipe: Doc) -> list[tuple[str, str]]:
    """Return what trains, with which parameters and seed."""
    estimator = reading.mapping(recipe.get("estimator"))
    trains = recipe.get("fit") or estimator.get("class")
    params = {**reading.mapping(estimator.get("params")), **reading.mapping(recipe.get("params"))}
    told = [("Trained by", plain(trains, 120))] if trains else []
    if params:
        told.append(("Parameters", plain(", ".join(f"{k} = {v}" for k, v in params.items()), 300)))
    if "seed" in recipe:
        told.append(("Seed", "none recorded" if recipe["seed"] is None else plain(recipe["seed"], 40)))
    return told


def _released(release: Doc) -> list[tuple[str, str]]:
    if not release:
        return []
    form = str(release.get("form", "probabilities"))
    told = [("One query returns", _RELEASE.get(form, form))]
    if form in ("rounded", "binned"):
        told.append(("Step", number(release.get("step"))))
    if form == "top_k":
        told.append(("Labels listed", number(release.get("k"))))
    if release.get("temperature", 1) != 1:
        told.append(("Temperature", number(release["temperature"])))
    if "verified" in release:
        told.append(("Checked against the registered model", "yes" if release["verified"] is True else "no"))
    return told


def _domain(domain: Doc) -> list[tuple[str, str]]:
    if not domain:
        return [("Questions that may be asked", "no domain was declared")]
    how = "inferred from the training data, which is a guess" if domain.get("inferred") else "declared"
    kinds = []
    if domain.get("categories"):
        kinds.append(f"{len(domain['categories'])} categorical features")
    if domain.get("box"):
        kinds.append(f"{len(domain['box'])} features with a range each")
    if domain.get("withheld"):
        kinds.append(plain(domain["withheld"], 80))
    if domain.get("max_length"):
        kinds.append(f"documents up to {number(domain['max_length'])} words")
    if domain.get("norm"):
        kinds.append(f"feature vectors of norm up to {number(domain['norm'])}")
    return [("Questions that may be asked", f"{', '.join(kinds) or 'any'} ({how})")]
