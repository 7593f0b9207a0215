"""Ranks of other hosts come in, or one line says on every rank why the start fails (CO-36).

Each line names the setting, the version or the file, and both values with whose they are.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time

import pytest

from streamglm.config import Settings
from streamglm.errors import StartError
from streamglm.ranks import dial, handshake
from streamglm.ranks.channel import BlockingChannel
from streamglm.ranks.door import Door
from streamglm.ranks.wire import VERSION, Join
from support.dialling import NEVER, TOKEN, Stage, address_of, changed


@pytest.fixture(scope="module")
def stage() -> Stage:
    return Stage()


def differing(stage: Stage, kind: str) -> tuple[Join, str]:
    """What rank 1 says, and the line that it has to end with."""
    same = stage.join()
    weights = next(name for name in same.files if name.endswith(".safetensors"))
    return {
        "context": (stage.join(context=4096), "--context: rank 0: 8192, rank 1: 4096"),
        "auto": (stage.join(context=None), "--context: rank 0: 8192, rank 1: auto"),
        "drafts": (stage.join(drafts=0), "--drafts: rank 0: auto, rank 1: 0"),
        "ranks": (stage.join(ranks=3), "--ranks: rank 0: 2, rank 1: 3"),
        "version": (
            changed(same, "versions", "streamglm", "0.0.9"),
            f"streamglm: rank 0: {same.versions['streamglm']}, rank 1: 0.0.9",
        ),
        "torch": (changed(same, "versions", "torch", "2.0"), "torch: rank 0: 2."),
        "config": (
            changed(same, "files", "config.json", "aa"),
            f"config.json: rank 0: {same.files['config.json']}, rank 1: aa",
        ),
        "shard": (
            changed(same, "files", weights, None),
            f"{weights}: rank 0: {same.files[weights]}, rank 1: missing",
        ),
        "more": (changed(same, "files", "x.safetensors", "9"), "x.safetensors: rank 0: missing"),
    }[kind]


KINDS = ("context", "auto", "drafts", "ranks", "version", "torch", "config", "shard", "more")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_rank_that_differs_ends_the_start_on_every_rank(
    stage: Stage, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """With `compare.difference` out of `Door._take`, every one of these is let in."""
    join, wanted = differing(stage, kind)
    outcome = await stage.start(join)
    assert outcome.line is not None
    assert outcome.line.startswith(wanted)
    assert outcome.statuses == [1]
    assert capfd.readouterr().err == f"streamglm: rank 1: {outcome.line}\n"


async def test_the_ranks_that_agree_are_told_too(
    stage: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    """Three ranks, of which one differs: the line is the same on all of them."""
    three = Stage(Settings(ranks=3))
    outcome = await three.start(three.join(1), three.join(2, kv_poison=True))
    assert outcome.statuses == [1, 1]
    assert outcome.line is not None
    assert outcome.line.startswith("--kv-poison: rank 0: off, rank 2: on")
    lines = sorted(capfd.readouterr().err.splitlines())
    assert lines == [f"streamglm: rank {rank}: {outcome.line}" for rank in (1, 2)]


async def test_a_rank_given_twice_is_named_with_both(stage: Stage) -> None:
    outcome = await stage.start(stage.join(0))
    assert outcome.statuses == [1]
    assert outcome.line is not None
    assert outcome.line.startswith("rank 0 is given twice: the server starts it itself and at 127.")
    three = Stage(Settings(ranks=3))
    outcome = await three.start(three.join(1), three.join(1))
    assert outcome.statuses == [1, 1]
    assert outcome.line is not None
    assert outcome.line.startswith("rank 1 is given twice: at 127.0.0.1:")


class Slow(Door):
    """Looks at who came when two have."""

    async def _until_all(self, seconds: float) -> str | None:
        while self._came.qsize() < 2:  # noqa: ASYNC110 (a queue rings for one)
            await asyncio.sleep(0.005)
        return await super()._until_all(seconds)


async def test_a_rank_given_twice_at_once_is_not_left_waiting(stage: Stage) -> None:
    """Both come before the server has looked at the first, with which its group is whole. Without
    `Door._too_many`, the second would wait for as long as the server runs."""
    with stage.door() as door:
        door = Slow(door.listener, door.terms)
        one = stage.dial(door, stage.join())
        gathering = asyncio.create_task(door.gather(5.0))
        ranks = [asyncio.create_task(asyncio.to_thread(dial.run, one, NEVER)) for _ in range(2)]
        try:
            with pytest.raises(StartError, match=r"^rank 1 is given twice: at 127\.0\.0\.1:"):
                await gathering
        finally:
            for remote in (*door.ranks.values(), *door._left()):
                remote.kill()
        assert await asyncio.gather(*ranks) == [1, 1]


async def test_a_rank_out_of_range_is_named_with_the_world(stage: Stage) -> None:
    outcome = await stage.start(stage.join(2))
    assert outcome.statuses == [1]
    assert outcome.line == ("--rank: 2 is out of range; --ranks is 2, so that ranks are 0 to 1")


async def test_a_rank_that_never_comes_is_named_and_the_others_end(stage: Stage) -> None:
    three = Stage(Settings(ranks=3))
    outcome = await three.start(three.join(1), seconds=0.5)
    assert outcome.statuses == [1]
    assert outcome.line == "rank 2 did not come within 0.5 s (--rank-wait-seconds)"
    outcome = await three.start(seconds=0.1)
    assert outcome.line == "ranks 1, 2 did not come within 0.1 s (--rank-wait-seconds)"


def test_a_server_that_never_listens_ends_the_rank(stage: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        address = address_of(bound)
    one = dial.Dial(address, TOKEN, stage.join(), "nowhere", 1, 0.3, 5.0)
    with pytest.raises(StartError, match=rf"--master {address}: no server answers for 0.3 s"):
        dial.connect(one)


async def test_another_token_is_told_so_and_a_stranger_changes_nothing(
    stage: Stage, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Neither ends the start: who has no token must not be able to. The token is in no line."""
    caplog.set_level(logging.DEBUG)
    with stage.door() as door:
        gathering = asyncio.create_task(door.gather(10.0))
        wrong = stage.dial(door, stage.join(), b"another token of some length")
        assert await asyncio.to_thread(dial.run, wrong, "nothing:at_all") == 1
        with socket.create_connection(door.listener.getsockname()) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(200))
        with await _let_in(stage, door):
            await gathering
            assert list(door.ranks) == [1]
            assert door.joins[1] == stage.join()
            door.ranks[1].kill()
    said = capfd.readouterr().err
    assert "rank 1 has another token than the server" in said
    for token in (TOKEN.decode(), "another token of some length"):
        assert token not in said + caplog.text


async def test_a_missing_rank_comes_with_the_one_that_was_not_let_in(stage: Stage) -> None:
    with stage.door() as door:
        gathering = asyncio.create_task(door.gather(1.0))
        wrong = stage.dial(door, stage.join(), b"another token of some length")
        await asyncio.to_thread(dial.run, wrong, "nothing:at_all")
        with pytest.raises(StartError, match="not let in: rank 1 has another token"):
            await gathering


async def _let_in(stage: Stage, door: Door) -> socket.socket:
    """The stream of a rank that says what it has to."""

    def come() -> socket.socket:
        sock = dial.connect(stage.dial(door, stage.join()))
        BlockingChannel(sock).send(stage.join())
        return sock

    return await asyncio.to_thread(come)


async def test_another_version_of_the_wire_ends_the_start_by_both_numbers(stage: Stage) -> None:
    def come(address: tuple[str, int]) -> bytes:
        with socket.create_connection(address) as sock:
            offer = sock.recv(38)
            nonce = bytes(32)
            proof = handshake._proof(TOKEN, b"rank", offer[6:] + nonce)
            sock.sendall(struct.pack("<4sHI32s32s", b"SGLM", VERSION + 1, 1, nonce, proof))
            verdict = b""
            while more := sock.recv(600):
                verdict += more
            return verdict[34:]

    with stage.door() as door:
        gathering = asyncio.create_task(door.gather(5.0))
        told = await asyncio.to_thread(come, door.listener.getsockname())
        line = f"wire: the server: {VERSION}, rank 1: {VERSION + 1}"
        assert told.decode() == line
        with pytest.raises(StartError, match=line):
            await gathering


async def test_a_server_with_another_token_is_not_believed(stage: Stage) -> None:
    """Without the server's proof, a rank would do what anyone says who listens at the address."""

    def pretend(listener: socket.socket) -> None:
        sock, _ = listener.accept()
        with sock:
            sock.sendall(struct.pack("<4sH32s", b"SGLM", VERSION, bytes(32)))
            sock.recv(200)
            sock.sendall(struct.pack("<H32s", 0, bytes(32)))
            time.sleep(0.05)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        liar = asyncio.create_task(asyncio.to_thread(pretend, listener))
        one = dial.Dial(address_of(listener), TOKEN, stage.join(), "nowhere", 1, 1.0, 5.0)
        with pytest.raises(StartError, match="the server has another token"):
            await asyncio.to_thread(dial.connect, one)
        await liar
