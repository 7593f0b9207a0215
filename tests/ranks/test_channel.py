"""Both ends of the socket: order, deadlines, and one end of the stream for everybody."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading

import pytest

from streamglm.errors import FrameCut, FrameMalformed, StreamEnded
from streamglm.ranks.channel import AsyncChannel, BlockingChannel
from streamglm.ranks.wire import VERSION, Beat, Broken, Note, Ping, Pong, Work
from streamglm.step import Step


class Ends:
    """A socket pair: the server's end as a channel, the rank's end raw and as a channel."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.rank = BlockingChannel(self.theirs)
        self.losses = 0

    async def __aenter__(self) -> Ends:
        self.server = await AsyncChannel.open(self.ours, self._lost)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        self.theirs.close()
        await asyncio.sleep(0)

    def _lost(self) -> None:
        self.losses += 1


async def test_messages_come_in_order_both_ways() -> None:
    async with Ends() as ends:
        for digest in range(3):
            ends.server.send(Work(digest, Step()))
        assert [ends.rank.receive() for _ in range(3)] == [Work(i, Step()) for i in range(3)]
        for text in "abc":
            ends.rank.send(Note(text))
        assert [await ends.server.receive(5.0) for _ in range(3)] == [Note(t) for t in "abc"]


async def test_a_large_message_waits_for_a_slow_reader() -> None:
    async with Ends() as ends:
        text = "x" * 3_000_000
        sender = threading.Thread(target=ends.rank.send, args=(Note(text),))
        sender.start()
        assert await ends.server.receive(5.0) == Note(text)
        sender.join()


async def test_a_deadline_passes_and_loses_nothing() -> None:
    async with Ends() as ends:
        with pytest.raises(TimeoutError):
            await ends.server.receive(0.01)
        ends.rank.send(Pong())
        assert await ends.server.receive(5.0) == Pong()


async def test_what_was_sent_before_the_end_is_received_before_it() -> None:
    async with Ends() as ends:
        ends.rank.send(Note("last words"))
        ends.theirs.close()
        await asyncio.sleep(0.01)
        assert await ends.server.receive(5.0) == Note("last words")
        for _ in range(2):
            with pytest.raises(StreamEnded):
                await ends.server.receive(5.0)
            with pytest.raises(StreamEnded):
                ends.server.send(Ping())
        assert ends.losses == 1


async def test_a_waiting_receiver_meets_the_end() -> None:
    async with Ends() as ends:
        waiting = asyncio.create_task(ends.server.receive(5.0))
        await asyncio.sleep(0)
        ends.theirs.close()
        with pytest.raises(StreamEnded):
            await waiting


async def test_a_frame_cut_by_the_end_is_named() -> None:
    async with Ends() as ends:
        ends.theirs.sendall(b"\x05\x00\x00\x00\x01")
        ends.theirs.close()
        with pytest.raises(FrameCut, match="5 bytes"):
            await ends.server.receive(5.0)


async def test_noise_ends_the_stream_by_name() -> None:
    async with Ends() as ends:
        header = struct.pack("<IHQ", 1, VERSION, 0)
        ends.theirs.sendall(header + b"\xc1")
        for _ in range(2):
            with pytest.raises(FrameMalformed):
                await ends.server.receive(5.0)
        assert ends.losses == 1


async def test_the_rank_meets_the_end_and_a_cut_frame_too() -> None:
    async with Ends() as ends:
        ends.server.send(Ping())
        await asyncio.sleep(0)
        ends.server.close()
        await asyncio.sleep(0)
        assert ends.rank.receive() == Ping()
        with pytest.raises(StreamEnded, match="closed the stream"):
            ends.rank.receive()
        with pytest.raises(StreamEnded, match="gone"):
            ends.rank.send(Pong())
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"\x00\x00")
        ours.close()
        with pytest.raises(FrameCut):
            BlockingChannel(theirs).receive()


async def test_a_stream_that_the_network_gave_up_says_so() -> None:
    """A rank that closes its end and a cable that is cut are two things to look for."""
    async with Ends() as ends:
        ends.server.connection_lost(TimeoutError(110, "Connection timed out"))
        with pytest.raises(StreamEnded, match=r"its stream broke .*Connection timed out"):
            await ends.server.receive(1.0)
        assert ends.losses == 1


async def test_a_sign_of_life_is_counted_and_is_no_answer() -> None:
    async with Ends() as ends:
        ends.rank.send(Beat())
        ends.rank.send(Pong())
        assert await ends.server.receive(5.0) == Pong()
        assert ends.server.heard > 0
        assert ends.server.parting is None


async def test_a_ranks_last_word_is_kept_for_whoever_asks_why() -> None:
    async with Ends() as ends:
        ends.rank.send(Broken("RuntimeError", "no memory left"))
        await ends.server.receive(5.0)
        assert ends.server.parting == Broken("RuntimeError", "no memory left")
