"""Times in UTC, as statements write and read them."""

from datetime import UTC, datetime

from privgate.errors import StatementError


def now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(UTC)


def when(text: str) -> datetime:
    """Return the time that ``text`` writes; without a zone it is no time.

    Raises
    ------
    StatementError
        It is no time.
    """
    try:
        value = datetime.fromisoformat(text)
    except (ValueError, TypeError) as exc:
        raise StatementError(f"{text!r} is no time") from exc
    if value.tzinfo is None:
        raise StatementError(f"{text!r} says no time zone")
    return value


def stamp(moment: datetime) -> str:
    """Return a time in UTC as statements write it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
