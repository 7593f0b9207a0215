"""A long life, made short: conversations of mixed lengths under a small limit, with restarts.

`live(5_000)` was run once in full; the test runs a part of it. What is found is compared with what
was written, byte by byte, so that a record of another conversation shows.
"""

from __future__ import annotations

import random
from array import array
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from streamglm.disk.system import System
from support.records import PAGE, keys_of, tokens
from support.tiers import Scene, scene

LIMIT = 1_500_000


class NoSync(System):
    """The order of things is tested elsewhere; here, a disk is waited for five thousand times."""

    def sync(self, file: int) -> None:
        pass

    def sync_folder(self, path: Path) -> None:
        pass


@dataclass
class Life:
    """What a life came to."""

    hits: int = 0
    misses: int = 0
    most: int = 0
    """Bytes of the folder."""
    resident: list[int] = field(default_factory=list)
    """Bytes of this process, at each restart."""


async def live(folder: Path, count: int, restarts: int, *, seed: int = 1) -> Life:
    """`count` conversations, each of some turns, a few of them going on later."""
    draw, life = random.Random(seed), Life()
    recent: list[tuple[array[int], int]] = []
    for part in range(restarts):
        async with scene(folder, total=LIMIT, system=NoSync()) as one:
            for number in range(count // restarts):
                prompt = tokens(PAGE * draw.randrange(2, 12) + 1, part * count + number)
                if recent and draw.random() < 0.4:
                    old, _ = draw.choice(recent[-8:])
                    await _resume(one, old, life)
                    prompt = old + tokens(2 * PAGE, number)
                pages = min(40, (len(prompt) - 1) // PAGE)
                await one.learn(prompt[: pages * PAGE + 1], pages)
                one.clock.seconds += 1
                recent.append((prompt[: pages * PAGE + 1], pages))
                del recent[:-32]
                stats = one.tier.stats()
                assert stats.bytes <= LIMIT, f"{stats.bytes} bytes"
                life.most = max(life.most, stats.bytes)
        life.resident.append(psutil.Process().memory_info().rss)
    return life


async def _resume(one: Scene, prompt: array[int], life: Life) -> None:
    """Read what is found of a prompt; the reader compares every byte with what was written."""
    if not one.tier.find(keys_of(prompt), (len(prompt) - 1) // PAGE):
        life.misses += 1
        return
    job = one.fetch(prompt)
    records = one.hands.read()
    assert one.tier.arrived(job) == records, "a record that was found cannot be read"
    one.tier.sealed(job)
    life.hits += 1


async def test_the_limit_holds_and_hits_are_right_over_a_life(tmp_path: Path) -> None:
    life = await live(tmp_path, 200, 4)
    assert 0.5 * LIMIT < life.most <= LIMIT
    assert life.hits > 5 * life.misses
