"""A write that wakes no task, and one that has to wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streamglm.edge.wire import SENDER, Wire, sender
from support.manual import ManualClock, settle


class Connection:
    """Takes bytes while `open`; notes which task sent them."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.taken: list[bytes] = []
        self.tasks: list[Any] = []

    async def send(self, message: Any) -> None:
        await self.open.wait()
        self.tasks.append(asyncio.current_task())
        self.taken.append(message.get("body", b"head"))


def wire_of(connection: Connection, held: list[str]) -> Wire:
    return Wire(connection.send, connection.send, ManualClock(), lambda: held.append("held"))


async def test_a_write_is_through_when_it_returns() -> None:
    connection, held = Connection(), list[str]()
    wire = wire_of(connection, held)
    asyncio.get_running_loop().call_soon(wire.write, b"a")
    await settle()
    assert (connection.taken, held, wire.blocked) == ([b"a"], [], False)
    assert connection.tasks == [None], "a task was woken for it"


async def test_a_write_that_has_to_wait_is_finished_by_a_drain() -> None:
    connection, held = Connection(), list[str]()
    wire = wire_of(connection, held)
    connection.open.clear()
    wire.write(b"a")
    assert (connection.taken, held, wire.blocked) == ([], ["held"], True)
    with pytest.raises(AssertionError):
        wire.write(b"b")
    task = asyncio.create_task(wire.drain())
    await settle()
    assert not task.done()
    connection.open.set()
    await task
    assert (connection.taken, wire.blocked) == ([b"a"], False)
    wire.write(b"b")
    await wire.end(b"c")
    assert connection.taken == [b"a", b"b", b"c"]


async def test_the_end_waits_for_what_is_before_it() -> None:
    connection = Connection()
    wire = wire_of(connection, [])
    connection.open.clear()
    wire.write(b"a")
    task = asyncio.create_task(wire.end(b"z"))
    await settle()
    connection.open.set()
    await task
    assert connection.taken == [b"a", b"z"]


async def test_a_drain_that_is_cancelled_closes_the_write() -> None:
    closed = list[str]()

    async def never(message: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            closed.append("closed")

    wire = Wire(never, never, ManualClock(), lambda: None)
    wire.write(b"a")
    task = asyncio.create_task(wire.drain())
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed == ["closed"]


async def test_bodies_go_past_the_middleware() -> None:
    async def direct(message: Any) -> None: ...

    async def wrapped(message: Any) -> None: ...

    assert sender({"type": "http", SENDER: direct}, wrapped) is direct
    assert sender({"type": "http"}, wrapped) is wrapped
