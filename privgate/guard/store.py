"""The door MLflow opens: the guarded registry store, kept tiny because every MLflow process imports it."""

from typing import Any

from privgate.guard.guard import leave_out_assistant

leave_out_assistant()


def guarded_store(store_uri: str, tracking_uri: str | None = None) -> Any:
    """Return the guarded registry store for ``privgate:<inner uri>``."""
    from privgate.guard.guard import guarded

    return guarded(store_uri, tracking_uri)
