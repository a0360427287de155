"""Training data: records that are written to files and read back, or that stay in a file, a data set or a loader."""

import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from privgate import digest
from privgate.documents import LARGE, strict_json
from privgate.errors import SubjectError
from privgate.subject import storing as files
from privgate.subject.domain import Domain
from privgate.subject.records import Records
from privgate.subject.storing import load, save


@dataclass(frozen=True, eq=False)
class TrainingData(Records):
    """Everything the training function saw, and who it belongs to.

    Parameters
    ----------
    X : array of any rank, DataFrame, scipy sparse matrix, or list of text
        One record a row.
    y : array of shape (n,)
        Labels or targets.
    ids : sequence of str, optional
        Names of records; ``0 .. n-1`` if absent. They never enter a report, only keyed hashes of them.
    groups : sequence, optional
        Which person each record belongs to.
    one_record_each : bool
        Each record is a person of its own. Policies may ask for this or ``groups``: nothing guesses it.
    candidates : (X, y) or (X, y, people), optional
        Candidates: people like them whom training does not use; attack rules need them. ``people`` are named as
        ``groups`` names members: who is a member is dropped, several records of one person are one trial.
    domain : Domain, mapping or sequence, optional
        What the endpoint accepts, also in the short forms of ``Domain.read``; inferred, and marked so, if absent.
    sensitive : tuple of str or int, optional
        Columns whose values form the groups of group-wise rules.
    """

    def save(self, folder: Path) -> dict[str, str]:
        """Write everything below ``folder`` without pickle; return ``file name -> sha256``."""
        folder.mkdir(parents=True, exist_ok=True)
        names: dict[str, Any] = {"X": save(self.X, folder / "X"), "y": save(self.y, folder / "y")}
        for name in ("ids", "groups"):
            value = getattr(self, name)
            names[name] = None if value is None else save(value, folder / name)
        if self.candidates is not None:
            parts = zip(("X", "y", "people"), self.candidates, strict=False)
            names["candidates"] = [save(v, folder / f"candidates_{k}") for k, v in parts]
        index = {"schema": "privgate/data/v2", "files": names, **self.declared(), "digest": self.digest}
        (folder / "data.json").write_text(json.dumps(index, indent=1), encoding="utf-8")
        return digest.of_files(folder)

    @classmethod
    def load(cls, folder: Path, *, mmap: bool = False) -> Self:
        """Read what ``save`` wrote; nothing is verified here, see ``digest``."""
        index = strict_json.read(folder / "data.json", LARGE)
        names = dict(index["files"])
        pair = names.pop("candidates", None)
        held: dict[str, Any] = {
            k: None if name is None else load(folder / name, mmap=mmap) for k, name in names.items()
        }
        candidates = None if pair is None else tuple(load(folder / name, mmap=mmap) for name in pair)
        return cls(**held, candidates=candidates, **_stated(index))

    def read_column(self, column: str) -> Any:
        """Return a column of the records, or of the file that they were read from; ``SubjectError``: there is none."""
        if column in getattr(self.X, "columns", ()):
            return self.X[column]
        if self.source is not None:
            frame = files.read(str(self.source["uri"]), str(self.source["format"]), dict(self.source["options"]))
            if column in frame.columns:
                return frame[column]
        raise SubjectError(
            f"the data have no column {column!r}; log the model again with TrainingData(..., groups=...), or name a "
            "column that they have"
        )

    @classmethod
    def from_loader(cls, reference: str, **options: Any) -> Self:
        """Return data that stay where they are: a function is called here, and only the digest is stored.

        ``reference`` is ``"package.module:function"``; the function takes ``options`` and returns a ``TrainingData``.
        """
        module, _, name = reference.partition(":")
        try:
            function = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as exc:
            raise SubjectError(
                f"loader {reference!r} cannot be imported: {exc}; name it as 'pkg.module:function'"
            ) from exc
        made = function(**options)
        if not isinstance(made, TrainingData):
            raise SubjectError(f"loader {reference!r} returned {type(made).__name__}, not TrainingData")
        object.__setattr__(made, "loader", json.dumps({"reference": reference, "options": options}))
        return made  # type: ignore[return-value]  # a loader may return a subclass

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        target: str | int,
        ids: str | int | None = None,
        groups: str | int | None = None,
        one_record_each: bool = False,
        drop: Sequence[str | int] = (),
        candidates: str | Path | None = None,
        domain: Any = None,
        sensitive: Sequence[str | int] = (),
        file_format: str | None = None,
        **options: Any,
    ) -> Self:
        """Return data that stay in their file: a reference and a digest are logged, nothing is uploaded.

        Parameters
        ----------
        path : str or Path
            CSV or Parquet that the gate will find there too: a mounted folder, a URI that pandas reads, a file that
            DVC keeps.
        target : column
            The labels.
        ids, groups : column, optional
            Names of records, and whose they are; neither is a feature.
        drop : sequence of columns
            What else is no feature.
        candidates : str or Path, optional
            A file of the same form with people who are not in the training data.
        one_record_each, domain, sensitive
            As in ``TrainingData``.
        file_format : str, optional
            "csv" or "parquet" where the name does not say it.
        options
            How pandas reads the file: ``sep``, ``dtype``, ``na_values``, … for CSV, ``columns`` for Parquet.
        """
        columns = {"target": target, "ids": ids, "groups": groups, "drop": list(drop)}
        uri = files.absolute(path)
        form = files.format_of(uri, file_format)
        X, y, id_values, group_values = files.split(files.read(uri, form, options), columns)
        pair, other = None, None if candidates is None else files.absolute(candidates)
        if other is not None:
            people = files.read(other, form, options)
            unused = [c for c in (ids, *drop) if c in people.columns]
            named = groups if groups in people.columns else None
            X_out, y_out, _, names = files.split(people, {"target": target, "groups": named, "drop": unused})
            pair = (X_out, y_out) if names is None else (X_out, y_out, names)
        about = {"one_record_each": one_record_each, "domain": domain, "sensitive": tuple(sensitive)}
        made = cls(X, y, ids=id_values, groups=group_values, candidates=pair, **about)
        source = {"uri": uri, "format": form, "columns": columns, "candidates": other, "options": options}
        try:
            recorded = json.loads(json.dumps({**source, **made.declared()}, allow_nan=False))
        except (TypeError, ValueError) as exc:
            raise SubjectError(f"how the file is read cannot be recorded: {exc}; use plain text and numbers") from exc
        object.__setattr__(made, "source", recorded)
        return made

    @classmethod
    def from_source(cls, source: Mapping[str, Any]) -> Self:
        """Return the data that a recorded ``source`` names, read again."""
        about = {**source["columns"], **_stated(source), **source["options"]}
        return cls.from_file(
            str(source["uri"]), candidates=source["candidates"], file_format=str(source["format"]), **about
        )

    @classmethod
    def from_dataset(cls, dataset: Any, **about: Any) -> Self:
        """Return the data of an ``mlflow.data`` dataset; they stay in its source if that is a file that says the same.

        Parameters
        ----------
        dataset : mlflow.data.pandas_dataset.PandasDataset or NumpyDataset
            With ``targets``.
        about
            As in ``from_file`` for frames (``ids``, ``groups``, ``drop``, …), as in ``TrainingData`` for arrays.
        """
        if getattr(dataset, "targets", None) is None:
            raise SubjectError("the dataset names no targets; make it with targets=")
        if not hasattr(dataset, "df"):
            return cls(dataset.features, dataset.targets, **about)
        named: dict[str, Any] = {k: about.pop(k) for k in ("ids", "groups", "drop") if k in about}
        columns: dict[str, Any] = {"target": dataset.targets, **named}
        uri = getattr(dataset.source, "uri", None)
        if uri is not None:
            try:
                read = cls.from_file(uri, **columns, **about)
            except SubjectError:
                read = None
            X, y, _, _ = files.split(dataset.df, columns)
            if read is not None and cls(X, y).digest == cls(read.X, read.y).digest:
                return read
        about.pop("file_format", None)
        X, y, ids, groups = files.split(dataset.df, columns)
        return cls(X, y, ids=ids, groups=groups, **about)


def _stated(index: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``Records.declared`` recorded, as keyword arguments."""
    domain = None if index["domain"] is None else Domain.from_payload(index["domain"])
    each = bool(index.get("one_record_each"))
    return {"domain": domain, "sensitive": tuple(index["sensitive"]), "one_record_each": each}
