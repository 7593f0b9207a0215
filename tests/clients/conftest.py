"""One server of canned replies for all clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.speaking import Speaking, speaking


@pytest.fixture(scope="session")
def shared() -> Iterator[Speaking]:
    with speaking() as made:
        yield made


@pytest.fixture
def served(shared: Speaking) -> Speaking:
    shared.engine.replies.clear()
    return shared
