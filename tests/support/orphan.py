"""A server that starts a rank, prints its pid and waits to be killed: `orphan.py SEED`.

With a seed it leaves a step in flight; `HANGS` makes that one endless.
"""

from __future__ import annotations

import asyncio
import sys

from streamglm.core.draws import draw_of
from streamglm.pool.pages import book_digest
from streamglm.ranks.client import start_ranks
from streamglm.step import Begin, Chunk, Step
from support.fakes import shape
from support.house import STUB, request, settings


async def main(seed: int) -> None:
    ranks = await start_ranks(settings(shape()), build=STUB)
    sys.stdout.write(f"{ranks.pids[0]}\n")
    sys.stdout.flush()
    asked = request(prompt=4, seed=seed)
    if seed:
        begin = Begin(0, (0, 1), draw_of(asked.sampling))
        step = Step(begins=(begin,), chunks=(Chunk(0, 0, asked.prompt, True),))
        await ranks.run(step, book_digest([(0, (0, 1))]))
    await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
