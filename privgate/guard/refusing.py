"""How the guard refuses: every doubt becomes MLflow's permission error, and its reads never come from a replica."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from privgate.errors import PrivgateError, StatementError

# a database that does not answer for a moment has refused nothing: clients try again after 503
PASSING = "TEMPORARILY_UNAVAILABLE"
#: whether this thread's reads are the guard's: a read replica may lag behind what is about to be written
GUARDING: ContextVar[bool] = ContextVar("privgate_guarding", default=False)


@contextmanager
def refusing(doing: str) -> Iterator[None]:
    """Turn every doubt into MLflow's permission error: HTTP 403, which clients do not retry.

    Only a database that does not answer is said as what it is, which lets nothing through either.
    """
    from mlflow.exceptions import MlflowException

    guarding = GUARDING.set(True)
    try:
        yield
    except MlflowException as exc:
        if exc.get_http_status_code() < 500:  # MLflow's own words: no such version, already exists
            raise
        if exc.error_code == PASSING:
            raise _unavailable(f"privgate: {doing} was not verified: the database did not answer; try again") from exc
        raise permission_denied(f"privgate: {doing} refused: it could not be verified ({exc.error_code})") from exc
    except (StatementError, PrivgateError) as exc:
        raise permission_denied(
            f"privgate: {doing} refused: {exc}. "
            "To release a version: privgate check, then privgate sign, then try again"
        ) from exc
    except Exception as exc:  # whatever goes wrong in here must not let a write through
        raise permission_denied(f"privgate: {doing} refused: it could not be verified ({type(exc).__name__})") from exc
    finally:
        GUARDING.reset(guarding)


def permission_denied(message: str) -> Any:
    """Return MLflow's error of HTTP 403."""
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import PERMISSION_DENIED

    return MlflowException(message, PERMISSION_DENIED)


def _unavailable(message: str) -> Any:
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import TEMPORARILY_UNAVAILABLE

    return MlflowException(message, TEMPORARILY_UNAVAILABLE)
