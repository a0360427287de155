"""The papers' experiments, published and obtained side by side."""

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from privgate.errors import UsageError
from privgate.reproduce.table import Row, Table
from privgate.retrain.fleet import Fleet

Say = Callable[[str], None]

#: name -> (module:function, needs the papers' data, what is reproduced)
EXPERIMENTS: dict[str, tuple[str, bool, str]] = {
    "long-location": ("long2017:run_location", True, "Long et al. (2017), Tables 1-2, Figures 2-3, on Location"),
    "long-adult": ("long2017:run_adult", True, "Long et al. (2017), Table 2 and single records, on Adult"),
    "long-purchase": ("long2017:run_purchase", False, "Long et al. (2017), Tables 1-2, purchase-like synthetic data"),
    "shokri-table2": ("shokri2017:run_table_2", True, "Shokri et al. (2017), Table II, Location and Adult"),
    "shokri-sources": (
        "shokri2017:run_sources",
        True,
        "Shokri et al. (2017), Figures 8-9: where shadow data come from",
    ),
    "shokri-mitigations": ("shokri2017:run_mitigations", False, "Shokri et al. (2017), Table III, synthetic data"),
    "yeom-table1": ("yeom2020:run_table_1", False, "Yeom et al. (2020), Table 1, a small CNN on scikit-learn's digits"),
    "shared-shadows": ("shared:run", True, "Shared shadow models against one set of models a record"),
}


def run(name: str, folder: Path, fleet: Fleet, say: Say) -> Iterator[Table]:
    """Return the tables of one experiment, each as soon as it is there.

    Parameters
    ----------
    name : str
        Key of ``EXPERIMENTS``.
    folder : Path
        Where the papers' data sets lie.
    fleet : Fleet
        Runs and remembers training.
    say : callable
        Told in one line what is being done.
    """
    if name not in EXPERIMENTS:
        raise UsageError(f"no experiment is called {name!r}; known: {', '.join(EXPERIMENTS)}")
    module, _, function = EXPERIMENTS[name][0].partition(":")
    tables: Iterator[Table] = getattr(import_module(f"privgate.reproduce.{module}"), function)(folder, fleet, say)
    return tables


__all__ = ["EXPERIMENTS", "Row", "Table", "run"]
