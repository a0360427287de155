"""Fixtures that every part of the suite shares."""

from collections.abc import Callable
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Return a file of the papers' data sets, which are kept beside the checkout; skip, saying why, without them."""

    def find(name: str) -> Path:
        path = SHARED / name
        if not path.is_file():
            pytest.skip(f"{name} is not in ../shared/data: the papers' data sets are not part of this repository")
        return path

    return find
