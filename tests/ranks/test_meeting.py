"""The place where ranks meet is on one address, and on a port that nobody else can have."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamglm.errors import PeerLost
from streamglm.ranks.collectives import follow, lead


def listeners(port: int) -> set[str]:
    """Addresses that listen at `port`, as the system writes them."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            address, state = line.split()[1], line.split()[3]
            host, _, number = address.partition(":")
            if int(number, 16) == port and state == "0A":
                found.add(host)
    return found


def test_a_store_listens_on_its_own_address_alone() -> None:
    """Without the listener that is handed to it, the store listens on every address of the host."""
    store, port = lead("127.0.0.1", 5.0)
    assert listeners(port) == {"0100007F"}
    follow("127.0.0.1", port, 5.0).set("a", "b")
    assert store.get("a") == b"b"
    other, elsewhere = lead("127.0.0.1", 5.0)
    assert elsewhere != port
    del other


def test_an_address_of_another_host_is_refused() -> None:
    with pytest.raises(PeerLost, match=r"192\.0\.2\.1 is no address of rank 0's host"):
        lead("192.0.2.1", 1.0)
