"""One server on the built-in model for all tests that do not need their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.server import Server, serving


@pytest.fixture(scope="session")
def nano() -> Iterator[Server]:
    """The built-in model, with poisoned pages."""
    with serving("nano", "--kv-poison", "--parallel", "8") as server:
        yield server
