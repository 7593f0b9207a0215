"""Two servers have one identity only if equal tokens mean equal states."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamglm.pool.identity import Identity
from streamglm.pool.layout import RowFormat

ONE = Identity(("a", "b"), RowFormat.BF16, 64)


@pytest.mark.parametrize(
    "other",
    [
        replace(ONE, fingerprints=("b", "a")),
        replace(ONE, fingerprints=("a",)),
        replace(ONE, fingerprints=("a", "c")),
        replace(ONE, rows=RowFormat.FP8),
        replace(ONE, page_rows=512),
    ],
    ids=["order", "world", "weights", "rows", "pages"],
)
def test_whatever_differs_makes_another_key(other: Identity) -> None:
    assert other.key() != ONE.key()


def test_equal_servers_have_equal_keys_and_every_salt_its_own() -> None:
    assert replace(ONE).key() == ONE.key()
    assert len({ONE.key(salt) for salt in ("", "a", "b", "ab")}) == 4
