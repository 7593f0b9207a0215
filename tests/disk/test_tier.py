"""The tier over a real folder: what is found, written, evicted, given up and forgotten.

Hands stand for the ranks; the clock is virtual, the thread and the files are real. A tier that is
not idle at the end of a test fails it.
"""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from streamglm.disk.limits import MARGIN, Limits
from streamglm.disk.opening import open_index
from streamglm.disk.store import Store
from streamglm.disk.system import System
from support.records import keys_of, records, tokens
from support.tiers import FIXED_BYTES, PAGE_BYTES, ROOMY, scene


@pytest.mark.parametrize("world", [1, 3])
async def test_what_is_learned_is_found_and_read_after_a_restart(
    tmp_path: Path, world: int
) -> None:
    prompt = tokens(80)
    async with scene(tmp_path, world=world) as one:
        assert await one.learn(prompt, 6)
        assert not await one.learn(prompt[:], 6) or one.tier.stats().learned_total == 1
    assert len(records(tmp_path, world)) == 7 * world
    async with scene(tmp_path, world=world) as one:
        job = one.fetch(prompt)
        assert one.tier.arrived(job) == 0
        assert one.hands.read() == one.tier.arrived(job) == 7
        one.tier.sealed(job)
        stats = one.tier.stats()
        assert stats.read_bytes_total > 0
        assert stats.reading == 0


async def test_nothing_is_written_twice(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        for pages in (2, 5, 9):
            assert await one.learn(tokens(80), pages)
        assert len(records(tmp_path)) == 9 + 3
        assert one.draft(tokens(80), 5) is None


async def test_two_drafts_at_once_share_their_pages(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        first, second = one.draft(tokens(80), 3), one.draft(tokens(80), 6)
        assert first is not None
        assert second is not None
        assert (len(first.parts), len(second.parts)) == (4, 4)
        one.hands.copy(second)
        one.hands.copy(first)
        await one.tier.settled()
        assert one.tier.find(keys_of(tokens(80)), 9) == 6


async def test_the_second_of_two_is_found_once_the_first_that_failed_is_written(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as one:
        first, second = one.draft(tokens(80), 3), one.draft(tokens(80), 6)
        assert first is not None
        assert second is not None
        one.tier.drop(first)
        one.hands.copy(second)
        await one.tier.settled()
        assert one.tier.find(keys_of(tokens(80)), 9) == 0
        assert await one.learn(tokens(80), 6)


class Full(System):
    """A disk without room, while `full`."""

    def __init__(self) -> None:
        self.full = True

    def create(self, path: Path) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().create(path)


async def test_a_full_disk_is_left_alone_for_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """J38: 1 s, then twice as long each time, 60 s at most; then all is well again."""
    system = Full()
    async with scene(tmp_path, system=system) as one:
        for wait in (1, 2, 4, 8, 16, 32, 60, 60):
            assert not await one.learn(tokens(80), 4)
            one.clock.seconds += wait - 0.5
            assert one.draft(tokens(80), 4) is None
            one.clock.seconds += 0.5
        system.full = False
        assert await one.learn(tokens(80), 4)
        assert one.tier.stats().dropped_total["backoff"] == 8
    said = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 8
    assert "No space left on device" in said[0]
    assert "60 s" in said[-1]


async def test_a_rank_that_cannot_write_gives_up_the_records_of_all(tmp_path: Path) -> None:
    class Second(System):
        def create(self, path: Path) -> int:
            if path.name.endswith(".1"):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            return super().create(path)

    async with scene(tmp_path, world=2, system=Second()) as one:
        assert not await one.learn(tokens(80), 4)
        assert not records(tmp_path, 2)


async def test_a_lost_record_is_dropped_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prompt = tokens(80)
    async with scene(tmp_path) as one:
        for pages in (3, 6):
            await one.learn(prompt, pages)
        (bad,) = [
            path for path in records(tmp_path) if path.name.startswith(keys_of(prompt)[4].hex())
        ]
        data = bytearray(bad.read_bytes())
        data[-3] ^= 4
        bad.write_bytes(data)
        job = one.fetch(prompt)
        assert one.hands.read() == 4
        assert one.tier.arrived(job) < 0
        await one.tier.settled()
        assert not bad.exists()
        assert one.tier.find(keys_of(prompt), 9) == 3
        assert one.tier.stats().lost_total == {"page": 1, "fixed": 0}
        assert await one.learn(prompt, 6)
    said = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 1
    assert "page 5 of 6" in said[0]


def size_of(folder: Path) -> int:
    """What `du -sb` says."""
    total = folder.stat().st_size
    for path in folder.rglob("*"):
        total += path.lstat().st_size
    return total


async def test_the_limit_holds_while_conversations_come_and_go(tmp_path: Path) -> None:
    """CO-08 at this level; the oldest go first, the one in use stays."""
    total = 500_000
    async with scene(tmp_path, total=total) as one:
        most, kept = 0, tokens(80, 1000)
        for seed in range(60):
            assert await one.learn(tokens(80, seed), 9)
            one.clock.seconds += 1
            await one.learn(kept, 9)
            most = max(most, size_of(tmp_path))
            assert one.tier.find(keys_of(kept), 9) == 9
        assert 0.5 * total < most <= total
        assert one.tier.stats().evicted_total > 20
        assert one.tier.find(keys_of(tokens(80, 59)), 9) == 9
        assert one.tier.find(keys_of(tokens(80, 0)), 9) == 0
    async with scene(tmp_path, total=300_000):
        assert size_of(tmp_path) <= 300_000


async def test_a_limit_below_one_state_saves_nothing_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path, total=200_000) as one:
        for seed in range(5):
            assert not await one.learn(tokens(400, seed), 49)
        assert one.tier.stats().dropped_total["limit"] == 5
        assert one.tier.stats().evicted_total == 0
    assert not records(tmp_path)
    said = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 1
    assert "--learn-gib" in said[0]


async def test_what_is_being_read_is_not_evicted(tmp_path: Path) -> None:
    async with scene(tmp_path, total=400_000) as one:
        await one.learn(tokens(80, 1), 9)
        job = one.fetch(tokens(80, 1))
        for seed in range(2, 30):
            await one.learn(tokens(80, seed), 9)
        assert one.hands.read() == 10
        assert one.tier.arrived(job) == 10
        one.tier.sealed(job)


async def test_forgetting_removes_files_and_what_is_on_its_way(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        await one.learn(tokens(80, 1), 4)
        await one.learn(tokens(80, 2), 4)
        coming = one.draft(tokens(80, 1), 9)
        assert coming is not None
        (name,) = [
            talk.id
            for talk in one.tier.conversations()
            if talk.tip.node.key == keys_of(tokens(80, 1))[3]
        ]
        keys = await one.tier.forget_conversations([name])
        assert keys == set(keys_of(tokens(80, 1))[:4])
        assert coming.over
        assert len(records(tmp_path)) == 5
        assert one.tier.find(keys_of(tokens(80, 1)), 9) == 0
        assert one.tier.find(keys_of(tokens(80, 2)), 9) == 4


async def test_another_identity_is_named_counted_and_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with scene(tmp_path) as one:
        await one.learn(tokens(80), 4)
    limits = Limits(ROOMY, PAGE_BYTES, FIXED_BYTES)
    store = Store(tmp_path)
    index = open_index(store, b"x" * 16, 1, {"model": "other"}, limits)
    assert (index.own, len(index), index.bytes > 0) == (0, 1, True)
    store.close()
    assert sum("another model" in record.message for record in caplog.records) == 1
    async with scene(tmp_path) as one:
        assert one.tier.find(keys_of(tokens(80)), 9) == 4
    store = Store(tmp_path)
    assert open_index(store, b"x" * 16, 1, {}, Limits(MARGIN, 1, 1)).bytes == 0
    assert not records(tmp_path)
    store.close()


async def test_uses_are_remembered_over_a_restart(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        for seed in (1, 2):
            await one.learn(tokens(80, seed), 4)
            one.clock.seconds += 10
        job = one.fetch(tokens(80, 1))
        one.hands.read()
        one.tier.sealed(job)
    async with scene(tmp_path) as one:
        oldest = one.tier.index.oldest()
        assert oldest is not None
        assert oldest.node.key == keys_of(tokens(80, 2))[3]
