"""The load generator: schedules, the gate, the refusal of other machines, and one whole run.

No model and no clock of the machine: replies are canned bytes, times are given.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import serve, server
from bench.client import Address, Answer, Reply, exchange, read
from bench.load import closed_loop, open_loop
from bench.record import Void
from support.canned import DONE, Canned, event, serving
from support.ticking import TickingClock


def reply(index: int = 0, sha: str = "aa", times: tuple[float, ...] = (1.0, 2.0)) -> Reply:
    return Reply(0.0, times, sha, 5 + index, len(times), cached_tokens=0)


def completion(text: str, sha: str = "aa") -> list[bytes]:
    """A streamed completion of one character an event."""
    usage: dict[str, Any] = {"prompt_tokens": 5, "completion_tokens": len(text)}
    usage["prompt_tokens_details"] = {"cached_tokens": 0}
    return [
        b": waiting\n\n",
        *(event({"choices": [{"text": character}]}) for character in text),
        event({"choices": [], "usage": usage, "streamglm": {"token_sha": sha}}),
        DONE,
    ]


# -- schedules


async def test_the_open_loop_sends_on_time_when_no_reply_comes() -> None:
    """The closed loop would send one request and wait for ever."""
    clock, sent = TickingClock(), list[float]()
    release = asyncio.Event()

    async def send(job: int) -> None:
        sent.append(clock.now())
        if len(sent) == 5:
            release.set()
        await release.wait()

    late = await open_loop(range(5), send, rate=4.0, clock=clock)
    assert sent == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert late == 0.0


async def test_the_open_loop_reports_its_own_lateness() -> None:
    clock = TickingClock()

    async def send(job: int) -> None:
        clock.seconds += 0.75  # as if the generator were kept from its work

    assert await open_loop(range(3), send, rate=4.0, clock=clock) == 0.5


async def test_the_closed_loop_never_has_more_than_its_streams() -> None:
    running, most, done = 0, 0, list[int]()

    async def send(job: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        done.append(job)

    await closed_loop(range(7), send, streams=3)
    assert most == 3
    assert sorted(done) == list(range(7))


# -- addresses


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1"),
        ("http://localhost:1", "127.0.0.1"),
        ("127.3.2.1:80", "127.3.2.1"),
        ("http://[::1]:9", "::1"),
    ],
)
def test_loopback_addresses_are_accepted(url: str, host: str) -> None:
    assert Address.of(url).host == host


@pytest.mark.parametrize(
    "url",
    [
        "http://192.168.0.1:80",
        "http://0.0.0.0:80",
        "http://example.org:80",
        "http://localhost.example.org:80",
        "http://127.0.0.1.example.org:80",
        "https://127.0.0.1:80",
        "http://127.0.0.1",
    ],
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="--url"):
        Address.of(url)


# -- reading replies


def test_a_reply_has_the_moment_of_each_event_with_text() -> None:
    """An event that is cut in two counts when its end came; usage is no token."""
    events = completion("ab")
    pieces = [(1.0, events[0]), (2.0, events[1][:9]), (3.0, events[1][9:] + events[2])]
    pieces += [(4.0, events[3]), (5.0, events[4])]
    found = read(Answer(sent=0.5, status=200, pieces=pieces, whole=True))
    assert found.times == (3.0, 3.0)
    assert (found.first_seconds, found.seconds, found.gaps) == (2.5, 2.5, (0.0,))


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (Answer(0.0, 200, [(1.0, b"data: {}\n\n")], whole=False), "closed before"),
        (Answer(0.0, 500, [(1.0, b"oh")], whole=True), "answered 500: oh"),
        (Answer(0.0, 200, [(1.0, event({"error": "x"}))], whole=True), "a reply failed: x"),
        (Answer(0.0, 200, [(1.0, DONE)], whole=True), "without text"),
    ],
    ids=["cut", "status", "error", "empty"],
)
def test_a_reply_that_is_not_whole_is_no_measurement(answer: Answer, what: str) -> None:
    with pytest.raises(Void, match=what):
        read(answer)


async def test_a_server_that_is_gone_gives_an_answer_that_is_not_whole() -> None:
    with serving(Canned()) as gone:
        pass
    assert not (await exchange(Address.of(gone.url), "/", {})).whole


# -- the gate and the numbers


def test_the_gate_refuses_a_reply_that_differs_from_its_request_alone() -> None:
    with pytest.raises(Void, match="request 1 gave token_sha bb under load and aa alone"):
        serve.gate({0: "aa", 1: "aa"}, [(0, reply()), (1, reply(sha="bb"))])


def test_the_gate_refuses_a_run_without_replies() -> None:
    with pytest.raises(Void, match="no reply"):
        serve.gate({0: "aa"}, [])


def test_tokens_a_second_are_those_of_the_whole_load() -> None:
    numbers = serve.statistics([reply(), reply(times=(1.0, 3.0, 4.0))], seconds=10.0)
    assert numbers["tokens_per_second"] == 0.5
    assert numbers["gap_seconds"] == {"p50": 1.0, "p95": 2.0, "p99": 2.0}
    assert numbers["first_seconds"] == {"p50": 1.0, "p95": 1.0, "p99": 1.0}


def test_a_distinct_request_is_the_same_each_time_and_unlike_the_others() -> None:
    plan = serve.Plan(4, 2, 10, 8, 1.0, 1.0, None)
    assert plan.body(0) == plan.body(0)
    assert plan.body(0)["prompt"] != plan.body(1)["prompt"]


# -- the command


@pytest.fixture
def canned() -> Iterator[Canned]:
    with serving(Canned()) as value:
        yield value


def command(url: str, results: Path, *flags: str) -> int:
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    return serve.run(parser.parse_args(["--url", url, "--results", str(results), *flags]))


@pytest.mark.parametrize("flags", [("--streams", "2"), ("--rate", "200")], ids=["closed", "open"])
def test_a_run_prints_a_table_and_records_one_line(
    canned: Canned, tmp_path: Path, flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    canned.replies = [completion("abc") for _ in range(2 + 5)]
    assert command(canned.url, tmp_path, "--requests", "5", "--distinct", "2", *flags) == 0
    (line,) = map(json.loads, (tmp_path / "serve.jsonl").read_text().splitlines())
    assert line["numbers"]["replies"] == 5
    assert line["numbers"]["unfinished"] == 0
    assert "first token" in capsys.readouterr().out


def test_a_void_run_records_nothing(canned: Canned, tmp_path: Path) -> None:
    canned.replies = [completion("abc"), completion("abc"), completion("abc", sha="bb")]
    with pytest.raises(Void, match="depended on its neighbours"):
        command(canned.url, tmp_path, "--requests", "2", "--distinct", "1", "--streams", "1")
    assert not list(tmp_path.iterdir())


def test_another_machine_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(Void, match="not this machine's loopback"):
        command("http://192.0.2.1:80", tmp_path)


@pytest.mark.parametrize(
    "flags",
    [("--requests", "0"), ("--seconds", "1e9"), ("--distinct", "65"), ("--streams", "-1")],
    ids=lambda flags: flags[0],
)
def test_a_run_is_bounded(canned: Canned, tmp_path: Path, flags: tuple[str, ...]) -> None:
    with pytest.raises(Void, match=f"{flags[0]} is .* at most"):
        command(canned.url, tmp_path, *flags)


def test_a_run_ends_at_its_time_limit(canned: Canned, tmp_path: Path) -> None:
    """The second reply never ends, so the run must cut it and say so."""
    canned.replies = [completion("a"), completion("a"), [b": waiting\n\n"]]
    canned.hold_from = 3
    flags = ("--requests", "2", "--distinct", "1", "--streams", "1", "--seconds", "0.5")
    assert command(canned.url, tmp_path, *flags) == 0
    assert json.loads((tmp_path / "serve.jsonl").read_text())["numbers"]["unfinished"] == 1


def test_a_server_that_does_not_start_voids_the_run_with_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(Void, match=r"did not start:\n.*streamglm: "), server.serving(str(tmp_path)):
        pass
