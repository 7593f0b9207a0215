"""A tier at work over a real folder: hands in place of ranks, and seconds that a test turns on."""

from __future__ import annotations

import asyncio
import os
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from streamglm.clock import SystemClock
from streamglm.disk.drafts import Drafted
from streamglm.disk.limits import Limits
from streamglm.disk.opening import open_index
from streamglm.disk.store import Store
from streamglm.disk.system import System
from streamglm.disk.tier import DiskTier
from streamglm.disk.verify import verify
from support.records import FIXED, IDENTITY, LAYOUT, PAGE, ROOT, Hands, keys_of

PAGE_BYTES = sum(one.size for one in LAYOUT)
FIXED_BYTES = sum(one.size for one in FIXED)
ROOMY = 64 << 20


class Clock(SystemClock):
    """Seconds that a test turns on."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now(self) -> float:
        return self.seconds


class Scene:
    """A tier at work."""

    def __init__(self, tier: DiskTier, hands: Hands, clock: Clock) -> None:
        self.tier = tier
        self.hands = hands
        self.clock = clock

    async def learn(self, prompt: array[int], pages: int) -> bool:
        """Write a state, if it is to be written; whether it was."""
        draft = self.draft(prompt, pages)
        if draft is None:
            return False
        while not draft.ready and not draft.over:  # noqa: ASYNC110 (the tier rings rounds alone)
            await asyncio.sleep(0.001)
        if not draft.over:
            held = self.tier.stats().bytes + draft.need
            assert held <= self.tier.limits.total, f"no room was made: {held} bytes"
            self.hands.copy(draft)
        await self.tier.settled()
        return self.tier.find(keys_of(prompt), pages) == pages

    def draft(self, prompt: array[int], pages: int) -> Drafted | None:
        keys = keys_of(prompt)[:pages]
        found = self.tier.draft(keys, ROOT, prompt[: pages * PAGE].tobytes())
        assert found is None or isinstance(found, Drafted)
        return found

    def fetch(self, prompt: array[int]) -> int:
        """Read what a prompt finds; the job."""
        pages = self.tier.find(keys_of(prompt), len(prompt) // PAGE)
        return self.tier.fetch(keys_of(prompt)[:pages], ROOT, prompt[: pages * PAGE].tobytes())


@asynccontextmanager
async def scene(
    folder: Path, *, total: int = ROOMY, world: int = 1, system: System | None = None
) -> AsyncIterator[Scene]:
    limits = Limits(total, PAGE_BYTES, FIXED_BYTES)
    store = Store(folder)
    index = open_index(store, IDENTITY, world, {"model": "test"}, limits)
    hands = Hands(store, world, system or System())
    clock = Clock()
    tier = DiskTier(
        store,
        index,
        hands,
        limits,
        world=world,
        clock=clock,
        moment=lambda: clock.seconds,
    )
    hands.tier = tier
    async with asyncio.TaskGroup() as group:
        running = group.create_task(tier.run())
        yield Scene(tier, hands, clock)
        await tier.settled()
        running.cancel()
    tier.index.check()
    assert not tier.index.pinned(), "something is still held"
    assert not verify(store, index).damaged
    assert not os.listdir(store.temporary), "something is still on its way"
    tier.close()
    store.close()
