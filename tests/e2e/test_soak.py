"""Memory is bounded: after 1,000 requests every page is free and the resident size is flat."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from support.server import Server


def resident(server: Server) -> int:
    """Bytes of the server and its ranks."""
    parent = psutil.Process(server.process.pid)
    family = [parent, *parent.children(recursive=True)]
    return sum(process.memory_info().rss for process in family)


@pytest.mark.timeout(300)
def test_a_thousand_requests_leave_every_page_free_and_memory_flat(nano: Server) -> None:
    draw = random.Random(0)

    def one(index: int) -> None:
        length = draw.choice((3, 20, 70))
        nano.complete([draw.randrange(300) for _ in range(length)], max_tokens=1 + index % 4)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(250)))  # warm: allocators have their arenas now
        before = resident(nano)
        list(pool.map(one, range(750)))
    nano.wait_idle()
    grown = resident(nano) - before
    assert grown < 24 << 20, f"{grown >> 20} MiB more after 750 requests"
