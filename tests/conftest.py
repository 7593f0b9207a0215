"""The order of files on several processes: those with slow tests and those that start servers come
first, so that none is left at the end for one process alone. Within a file nothing moves."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow and item.path.parent.name != "e2e")
