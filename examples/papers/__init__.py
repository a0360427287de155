"""The papers' experiments, published and obtained side by side."""

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from papers.table import Row, Table
from privgate.errors import UsageError
from privgate.training.fleet import Fleet

Say = Callable[[str], None]

#: name -> (module:function, minutes of one core of a two-core EPYC, what is reproduced)
EXPERIMENTS: dict[str, tuple[str, int, str]] = {
    "long-location": ("long2017:run_location", 14, "Long et al. (2017), Tables 1-2, Figures 2-3, on Location"),
    "long-adult": ("long2017:run_adult", 5, "Long et al. (2017), Table 2 on Adult"),
    "adult-records": ("adult_records:run", 2, "Long et al. (2017), section 5.5: single records of Adult"),
    "long-purchase": ("long2017:run_purchase", 22, "Long et al. (2017), Tables 1-2, purchase-like synthetic data"),
    "long-figures": ("long_figures:run", 2, "Long et al. (2017), Figures 6, 7 and 8 on Adult"),
    "shokri-table2": ("shokri2017:run_table_2", 2, "Shokri et al. (2017), Table II, Location and Adult"),
    "shokri-sources": ("shokri2017:run_sources", 3, "Shokri et al. (2017), Figures 8-9: where shadow data come from"),
    "shokri-mitigations": ("mitigations:run", 17, "Shokri et al. (2017), Table III, synthetic data"),
    "shokri-classes": ("shokri_figures:run", 3, "Shokri et al. (2017), Table I, Figures 4, 5, 7 and 10 to 13"),
    "yeom-table1": ("yeom2020:run_table_1", 2, "Yeom et al. (2020), Table 1, a small CNN on scikit-learn's digits"),
    "yeom-warfarin": ("warfarin:run", 1, "Yeom et al. (2020), Figures 2 and 5: regressors and their attributes, IWPC"),
    "yeom-errors": ("yeom_figures:run", 1, "Yeom et al. (2020), Figures 2c, 3 and 4"),
    "yeom-gaussian": ("gaussian:run", 1, "Yeom et al. (2020), Theorems 3, 5, Definition 6: simulated errors"),
    "thudi-figures": ("thudi2022:run", 1, "Thudi et al. (2022), Figures 1 to 7, closed forms"),
    "regressors": ("influence_on_numbers:run", 2, "Which regressors regression-1 approves, diabetes and IWPC"),
    "yeom-collusion": (
        "colluding:run_figure_6",
        3,
        "Yeom et al. (2020), Figure 6: Algorithm 1 on digits",
    ),
    "yeom-robust": (
        "colluding:run_figure_7",
        3,
        "Yeom et al. (2020), Figure 7: robust networks, Adversaries 1, 8, 9",
    ),
    "shared-shadows": ("shared:run", 1, "What shared shadow models cost, against one set of models a record"),
    "both-ways": ("shared:run_both_ways", 9, "Whether shared shadow models agree with one set of models a record"),
}


def run(name: str, folder: Path, fleet: Fleet | None, say: Say) -> Iterator[Table]:
    """Return the tables of one experiment, each as soon as it is there.

    Parameters
    ----------
    name : str
        Key of ``EXPERIMENTS``.
    folder : Path
        Where the papers' data sets lie.
    fleet : Fleet or None
        Runs and remembers training; without one, experiments that need none run and nothing is remembered.
    say : callable
        Told the cost first, then in one line each what is being done.
    """
    if name not in EXPERIMENTS:
        raise UsageError(f"no experiment is called {name!r}; known: {', '.join(EXPERIMENTS)}")
    place, minutes, _ = EXPERIMENTS[name]
    kept = "what is trained is remembered, so an interrupted run goes on" if fleet else "nothing is remembered"
    say(f"{name}: about {minutes} minutes of one core where nothing is remembered yet; {kept}")
    module, _, function = place.partition(":")
    tables: Iterator[Table] = getattr(import_module(f"papers.{module}"), function)(folder, fleet, say)
    return tables


__all__ = ["EXPERIMENTS", "Row", "Table", "run"]
