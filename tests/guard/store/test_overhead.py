"""What the guard costs: processor time of a promotion by the guarded store, next to MLflow's own."""

import shutil
import time

import pytest
from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore

from privgate.guard import store as guard
from tests.guard.store.conftest import Site

pytestmark = [pytest.mark.slow, pytest.mark.server]
CALLS = 400


def test_a_guarded_promotion_costs_less_than_four(tmp_path, running_guarded, monkeypatch):
    site, folder = Site(tmp_path / "site"), tmp_path / "guarded"
    folder.mkdir()
    with running_guarded(folder, site=site) as registry:
        version = registry.log("m")
        registry.sign("m", version)
        shutil.copy(folder / "tracking.db", tmp_path / "copy.db")
    monkeypatch.setenv("PRIVGATE_GUARD", str(site.config))
    stores = [SqlAlchemyStore, lambda uri: guard.guarded_store(f"privgate:{uri}")]
    plain, guarded = (make(f"sqlite:///{tmp_path}/copy.db") for make in stores)
    spent = []
    for store in (plain, guarded, plain, guarded):  # the first time, what is read once is read
        begin = time.process_time()
        for _ in range(CALLS):
            store.set_registered_model_alias("m", "production", version)
        spent.append((time.process_time() - begin) / CALLS)
    assert spent[3] < 4 * spent[2], spent
