"""Nothing is lost when clients leave: pages, slots, lanes and memory, over HTTP.

`python -m bench soak` is the same run with ten thousand requests. Each fact can fail: a lease that
is not returned leaves the server not idle, a slot or a borrow that is not returned is named, and a
reply that differs from the same request alone is counted.
"""

from __future__ import annotations

import asyncio

import psutil
import pytest

from bench.client import Address
from bench.soak import FLAGS, Soak
from support.server import serving


@pytest.mark.timeout(300)
def test_requests_whose_clients_leave_take_nothing_with_them() -> None:
    with serving("nano", "--kv-poison", *FLAGS) as server:
        process = psutil.Process(server.process.pid)
        soak = Soak(Address.of(server.url), server.url, process, leave=0.3, seed=2)
        asyncio.run(soak.run(700, 12))
    assert soak.left > 100
    assert soak.numbers["states_kept_at_the_end"] > 0
