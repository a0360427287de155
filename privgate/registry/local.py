"""A registry of one's own in a folder, for the demonstration and for trying things out."""

from pathlib import Path

from privgate.registry.client import answering, connect, remember_experiment


def local_registry(folder: Path, *, experiment: str = "privgate") -> str:
    """Return the tracking URI of an SQLite registry below ``folder``, made if absent, and log to it from now on.

    Parameters
    ----------
    folder : Path
        Gets ``registry.db`` and ``artifacts/``; nothing is written anywhere else.
    experiment : str
        Experiment whose artifacts go below ``folder``.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    uri = f"sqlite:///{folder / 'registry.db'}"
    with answering(f"opening the registry in {folder}"):
        client = connect(uri, make=True)
        known = client.get_experiment_by_name(experiment)
        made = known is None and client.create_experiment(experiment, artifact_location=(folder / "artifacts").as_uri())
    remember_experiment(uri, str(made or known.experiment_id))
    return uri
