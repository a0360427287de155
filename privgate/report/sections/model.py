"""Model and release context: what was trained, from what, and what a query returns."""

from privgate.evidence.figures import number
from privgate.report import found_blocks
from privgate.report.blocks import Block, Facts, Section, Text
from privgate.report.found_blocks import released
from privgate.report.report_schema import DomainFacts, RecipeFacts, ReportDocument, SubjectFacts
from privgate.report.text import plain


def section(doc: ReportDocument) -> Section | None:
    """Return the model's facts and what the deployed model hands out."""
    s = doc.subject
    told = (
        ("Records", s.n_records),
        ("People", s.n_units),
        ("Labels", s.n_classes),
        ("Candidates outside the data", s.n_candidates),
    )
    items = [(name, number(count)) for name, count in told if count]
    items += [("Answers", "numbers, one a question")] if s.task == "regression" else []
    items += [*_recipe(s.recipe or RecipeFacts()), *_released(s), *_domain(s.domain)]
    blocks: list[Block] = [Facts(items)]
    if s.release.form != "probabilities" or s.release.temperature != 1:
        blocks.append(
            Text("Measured, attacks included, on what is released and on exact probabilities; the worse counts.")
        )
    return Section("model", "Model and release", [*blocks, *found_blocks.blocks(doc)])


def _recipe(recipe: RecipeFacts) -> list[tuple[str, str]]:
    """Return what trains, with which parameters and seed."""
    told = [("Trained by", plain(recipe.trained_by, 120))] if recipe.trained_by else []
    if recipe.settings:
        told.append(("Parameters", plain(", ".join(f"{k} = {v}" for k, v in recipe.settings.items()), 300)))
    if recipe.kind:
        told.append(("Seed", "none recorded" if recipe.seed is None else plain(recipe.seed, 40)))
    return told


def _released(s: SubjectFacts) -> list[tuple[str, str]]:
    release = s.release
    told = [("One query returns", released(s))]
    if release.form in ("rounded", "binned"):
        told.append(("Step", number(release.step)))
    if release.form == "top_k":
        told.append(("Labels listed", number(release.k)))
    if release.temperature != 1:
        told.append(("Temperature", number(release.temperature)))
    return told


def _domain(domain: DomainFacts | None) -> list[tuple[str, str]]:
    if domain is None:
        return [("Questions that may be asked", "no domain was declared")]
    how = "inferred from the training data, which is a guess" if domain.inferred else "declared"
    kinds = []
    if domain.categories:
        kinds.append(f"{len(domain.categories)} categorical features")
    if domain.columns:
        kinds.append(f"{len(domain.columns)} columns, each with its range or its categories")
    elif domain.box:
        kinds.append(f"{len(domain.box)} features with a range each")
    if domain.queries:
        kinds.append(f"{domain.queries} listed questions, each asked")
    if domain.withheld:
        kinds.append(plain(domain.withheld, 80))
    if domain.max_length:
        kinds.append(f"documents up to {number(domain.max_length)} words")
    if domain.norm:
        kinds.append(f"feature vectors of norm up to {number(domain.norm)}")
    return [("Questions that may be asked", f"{', '.join(kinds) or 'any'} ({how})")]
