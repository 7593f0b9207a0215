"""Real rank processes: they start, say why they cannot, die, hang, and always end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from streamglm.core.draws import draw_of
from streamglm.core.engine import Health
from streamglm.errors import CheckpointError, EngineFailed, RanksDiffer, StartError
from streamglm.pool.pages import book_digest
from streamglm.ranks.client import RankClient, start_ranks
from streamglm.ranks.group import Limits, RankGroup
from streamglm.ranks.wire import Report
from streamglm.step import Begin, Chunk, Step
from support.alive import alive
from support.fakes import shape
from support.house import STUB, read, request, serving, settings
from support.stub import EXITS, HANGS, RAISES, SLOW

OF = shape()
DIGEST = book_digest([(0, (0, 1))])
TESTS = Path(__file__).parents[1]
QUICK = Limits(silence=20.0, step=20.0, ping_every=0.1, ping=0.5, stop=0.5)


def environment() -> dict[str, str]:
    """That of a process which imports the helpers of the tests."""
    path = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{path}"}


def first_step(seed: int) -> Step:
    asked = request(prompt=4, seed=seed)
    begin = Begin(0, (0, 1), draw_of(asked.sampling))
    return Step(begins=(begin,), chunks=(Chunk(0, 0, asked.prompt, True),))


@asynccontextmanager
async def ranks_of(
    world: int = 1, model: str = "stub", limits: Limits = QUICK
) -> AsyncIterator[RankClient]:
    """Ranks, none of which runs afterwards."""
    client = await start_ranks(settings(OF, model), world=world, limits=limits, build=STUB)
    pids = client.pids
    try:
        yield client
    finally:
        await client.close()
        await client.close()
        assert not any(alive(pid) for pid in pids)


async def test_a_start_tells_its_progress_and_what_the_rank_has() -> None:
    heard: list[tuple[str, int, int]] = []
    client = await start_ranks(
        settings(OF), progress=lambda *said: heard.append(said), build=STUB, limits=QUICK
    )
    await client.close()
    assert heard == [
        ("starting", 0, 0),
        ("loading", 0, 1000),
        ("loading", 1000, 1000),
        ("self-check", 0, 0),
        ("ready", 0, 0),
    ]
    spec = settings(OF).spec
    assert client.reports == [
        Report(1000, 6400, 40, 0, False, 0, True, "of rank 0", spec, numerics="on GPU 0")
    ]


@pytest.mark.parametrize(
    ("model", "error", "text"),
    [
        ("hole", CheckpointError, "^model-00002-of-00003.safetensors: missing$"),
        ("broken", StartError, "^rank 0: RuntimeError: no memory left$"),
        ("exits", StartError, "^rank 0 ended with exit code 7 before it was ready$"),
        ("silent", StartError, "^rank 0 has said nothing for 2 s$"),
    ],
)
async def test_a_start_that_fails_says_why_and_leaves_nothing(
    model: str, error: type[StartError], text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    group = RankGroup(Limits(silence=2.0, stop=0.5))
    with pytest.raises(error, match=text):
        await group.start(settings(OF, model), 1, STUB, lambda *_: None)
    assert group.ranks == []
    assert ("Traceback" in capfd.readouterr().err) == (model == "broken")


async def test_a_build_that_does_not_exist_is_a_start_error() -> None:
    with pytest.raises(StartError, match="ModuleNotFoundError: No module named 'nowhere'"):
        await start_ranks(settings(OF), build="nowhere:build", limits=QUICK)


async def test_a_rank_that_has_read_another_config_is_refused() -> None:
    with pytest.raises(StartError, match=r"config.json: chunk_rows is 17 at rank 1, 16 here"):
        await start_ranks(settings(OF, "differs"), world=2, limits=QUICK, build=STUB)


async def test_a_cancelled_start_leaves_nothing() -> None:
    group = RankGroup(QUICK)
    task = asyncio.create_task(group.start(settings(OF, "silent"), 1, STUB, lambda *_: None))
    while not group.ranks:  # noqa: ASYNC110 (a group that starts rings no bell)
        await asyncio.sleep(0.01)
    pid = group.ranks[0].pid
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not alive(pid)


async def test_two_ranks_do_the_same_work() -> None:
    async with ranks_of(world=2) as ranks:
        result = await ranks.run(first_step(5), DIGEST)
        assert len(result.drawn) == 1


async def test_each_rank_of_a_host_has_a_gpu_of_its_own() -> None:
    async with ranks_of(2) as client:
        assert [report.numerics for report in client.reports] == ["on GPU 0", "on GPU 1"]


async def test_two_ranks_that_draw_differently_are_lost() -> None:
    async with ranks_of(world=2, model="liar") as ranks:
        with pytest.raises(RanksDiffer, match="rank 1 drew other tokens than rank 0"):
            await ranks.run(first_step(5), DIGEST)
        with pytest.raises(RanksDiffer):
            await ranks.run(Step(), DIGEST)


async def test_a_refused_step_is_named_and_latches() -> None:
    async with ranks_of() as ranks:
        with pytest.raises(EngineFailed, match=r"^rank 0: RanksDiffer: the book's digest is"):
            await ranks.run(first_step(5), DIGEST + 1)
        with pytest.raises(RanksDiffer, match="digest"):
            await ranks.run(first_step(5), DIGEST)
        assert "RanksDiffer" in (await ranks.failed()).message


async def test_an_executor_that_raises_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    async with ranks_of() as ranks:
        with pytest.raises(EngineFailed, match=r"rank 0 failed: RuntimeError: the stub was asked"):
            await ranks.run(first_step(RAISES), DIGEST)
    assert "Traceback" in capfd.readouterr().err


async def test_a_rank_that_exits_in_a_step_is_named_with_its_code() -> None:
    async with ranks_of() as ranks:
        with pytest.raises(EngineFailed, match="rank 0 ended with exit code 3"):
            await ranks.run(first_step(EXITS), DIGEST)


async def test_a_rank_killed_in_a_step_is_named_within_two_seconds() -> None:
    async with ranks_of() as ranks:
        step = asyncio.create_task(ranks.run(first_step(HANGS), DIGEST))
        await asyncio.sleep(0.05)
        os.kill(ranks.pids[0], signal.SIGKILL)
        async with asyncio.timeout(2.0):
            with pytest.raises(EngineFailed, match=r"killed by signal 9 \(SIGKILL\)"):
                await step


async def test_a_rank_killed_at_rest_is_noticed_within_two_seconds() -> None:
    async with ranks_of() as ranks:
        watch = asyncio.create_task(ranks.failed())
        await asyncio.sleep(0.25)
        assert not watch.done(), "a rank at rest answers"
        os.kill(ranks.pids[0], signal.SIGKILL)
        async with asyncio.timeout(2.0):
            assert "killed by signal 9" in (await watch).message


async def test_a_rank_that_hangs_in_a_step_meets_the_watchdog_and_is_ended() -> None:
    async with ranks_of(limits=Limits(silence=20.0, step=0.3, stop=0.3)) as ranks:
        with pytest.raises(EngineFailed, match=r"rank 0 has not answered for 0.3 s"):
            await ranks.run(first_step(HANGS), DIGEST)


async def test_a_rank_that_stands_still_at_rest_meets_the_watchdog() -> None:
    async with ranks_of() as ranks:
        os.kill(ranks.pids[0], signal.SIGSTOP)
        async with asyncio.timeout(2.0):
            assert "rank 0 has not answered for 0.5 s" in (await ranks.failed()).message


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_an_interrupt_is_the_servers_to_handle(number: signal.Signals) -> None:
    async with ranks_of() as ranks:
        os.kill(ranks.pids[0], number)
        result = await ranks.run(first_step(SLOW), DIGEST)
        assert len(result.drawn) == 1


async def test_an_interrupt_before_a_ranks_first_line_does_not_end_it() -> None:
    group = RankGroup(QUICK)
    start = asyncio.create_task(group.start(settings(OF), 1, STUB, lambda *_: None))
    while not group.ranks:  # noqa: ASYNC110 (a group that starts rings no bell)
        await asyncio.sleep(0.0001)
    os.kill(group.ranks[0].pid, signal.SIGINT)
    assert len(await start) == 1
    await group.stop()


async def test_an_abandoned_step_loses_the_ranks() -> None:
    """The late answer must not be taken for the next step's."""
    async with ranks_of() as ranks:
        step = asyncio.create_task(ranks.run(first_step(SLOW), DIGEST))
        await asyncio.sleep(0.01)
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        with pytest.raises(EngineFailed, match="a step was abandoned"):
            await ranks.run(Step(), DIGEST)


async def test_a_rank_killed_while_serving_fails_the_replies_and_turns_health() -> None:
    async with ranks_of() as ranks, serving(OF, ranks) as engine:
        replies = [engine.submit(request(max_tokens=200, seed=SLOW)) for _ in range(6)]
        await anext(replies[0])
        start = time.monotonic()
        os.kill(ranks.pids[0], signal.SIGKILL)
        for reply in replies:
            assert isinstance((await read(reply))[1], EngineFailed)
        assert time.monotonic() - start < 2.0
        assert engine.health() == Health(False, "rank 0 was killed by signal 9 (SIGKILL)")


@pytest.mark.parametrize("seed", [0, HANGS], ids=["at-rest", "in-a-step"])
def test_a_rank_ends_when_the_server_is_killed(seed: int) -> None:
    with subprocess.Popen(
        [sys.executable, TESTS / "support" / "orphan.py", str(seed)],
        stdout=subprocess.PIPE,
        env=environment(),
        text=True,
    ) as server:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        if seed == HANGS:
            assert server.stdout.readline() == "hangs\n"
        assert alive(pid)
        server.kill()
    deadline = time.monotonic() + 5.0
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(pid)


def test_a_server_that_leaves_in_a_hurry_takes_its_ranks_along(tmp_path: Path) -> None:
    """It neither waits for a rank that nobody tells to stop, nor leaves one behind."""
    script = tmp_path / "hurry.py"
    script.write_text(
        "import asyncio\n"
        "from support.fakes import shape\n"
        "from support.house import STUB, settings\n"
        "from streamglm.ranks.client import start_ranks\n"
        "async def main():\n"
        "    print((await start_ranks(settings(shape()), build=STUB)).pids[0])\n"
        "    raise SystemExit(3)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, script],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert done.returncode == 3
    assert not alive(int(done.stdout))


def test_a_rank_does_not_run_the_main_module_of_the_server(tmp_path: Path) -> None:
    """A script without a guard would start itself again, and a console script costs its imports."""
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import asyncio\n"
        "from support.fakes import shape\n"
        "from support.house import STUB, settings\n"
        "from streamglm.ranks.client import start_ranks\n"
        "async def main():\n"
        "    await (await start_ranks(settings(shape()), build=STUB)).close()\n"
        "    print('once')\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, script], env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("once\n", "")


def test_the_server_process_never_imports_torch() -> None:
    """Its start is seconds faster and its memory smaller by as much as torch takes."""
    code = (
        "import sys, streamglm.core.service, streamglm.ranks.client, streamglm.pool.pages;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
