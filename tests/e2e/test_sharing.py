"""Many clients at once: who waits, who leaves, who shares; each reply equals the one alone.

Through HTTP and real rank processes. What is bounded here is counted in prompt rows and in order,
never in seconds.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from support.server import Server, serving
from support.talk import cached, greedy, ids, stream, words

ROUNDS = 12
"""Of CO-14; its two hundred are a run by hand."""


@pytest.fixture(scope="module")
def eight() -> Iterator[Server]:
    """Eight lanes, and a pool that all of them fill."""
    flags = ("--parallel", "8", "--pool-tokens", "49152", "--kv-poison")
    with serving("nano", *flags) as server:
        yield server


def lanes(server: Server) -> dict[int, dict[str, Any]]:
    """The running requests, by the tokens of their prompts."""
    with server.client() as client:
        value = client.get("/v1/pool").json()["lanes"]
    return {one["prompt_tokens"]: one for one in value}


def until(server: Server, prompt_tokens: int, position: int = 0, state: str = "filling") -> None:
    """Wait until the request of so many prompt tokens stands at `position` or beyond."""
    deadline = time.monotonic() + 30
    while True:
        lane = lanes(server).get(prompt_tokens)
        if lane is not None and lane["position"] >= position and lane["state"] == state:
            return
        assert time.monotonic() < deadline, f"no lane of {prompt_tokens} tokens is {state}"


def test_a_short_prompt_behind_a_long_one_is_answered_first(eight: Server) -> None:
    """CO-10 and J40, in rows: when the short prompt's reply is whole, a fifth of the long prompt
    is not done, and the stream beside both has not stood still. First come, first served would
    fill the long prompt before."""
    long, short = words(11, 12_000), words(12, 20)
    running: list[int] = []
    with stream(eight, words(13, 30), **greedy(2000)) as chunks:
        running += next(chunks)
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(eight.complete, long, **greedy(4))
            until(eight, len(long), 256)
            seen = _follow(chunks, running)
            began = lanes(eight)[len(long)]["position"]
            quick = eight.complete(short, **greedy(8))
            stood = lanes(eight)[len(long)]
            assert stood["state"] == "filling"
            assert stood["position"] - began < 0.2 * len(long)
            count = len(running)
            until(eight, len(long), stood["position"] + 512)
            assert len(running) > count, "no token while the prompt filled"
            got = late.result()
    seen.join(10)
    eight.wait_idle()
    assert ids(eight.complete(short, **greedy(8))) == ids(quick)
    alone = eight.complete(words(13, 30), **greedy(len(running)))
    assert ids(alone) == running
    again = eight.complete(long, **greedy(4))
    assert ids(again) == ids(got)
    assert cached(again) > len(long) - 128


def _follow(chunks: Iterator[list[int]], into: list[int]) -> threading.Thread:
    """Read a stream to its end, or until it is closed, in a thread."""

    def read() -> None:
        try:
            for chunk in chunks:
                into.extend(chunk)
        except Exception:  # the block that owns the stream was left
            return

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def test_strangers_do_not_notice_who_leaves_and_comes_back(eight: Server) -> None:
    """CO-14: six streams on one prefix and two strangers; three leave at random moments and ask
    again at once. Then eight run at once, so no lane is lost."""
    draw = random.Random(14)
    prefix = words(14, 128)
    asked = [prefix + words(140 + i, 5 + i) for i in range(6)]
    asked += [words(150 + i, 40 + 9 * i) for i in range(2)]
    want = [ids(eight.complete(one, **greedy(24))) for one in asked]
    total = eight.metric("streamglm_pages_total")

    def leave(place: int, seconds: float) -> None:
        with stream(eight, asked[place], **greedy(24)) as chunks:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline and next(chunks, None) is not None:
                pass

    for _ in range(ROUNDS):
        leaving = draw.sample(range(6), 3)
        with ThreadPoolExecutor(11) as pool:
            for place in leaving:
                pool.submit(leave, place, draw.uniform(0.001, 0.04))
            whole = [one for one in range(8) if one not in leaving] + leaving
            replies = list(pool.map(lambda one: eight.complete(asked[one], **greedy(24)), whole))
        assert [ids(reply) for reply in replies] == [want[one] for one in whole]
    eight.wait_idle()
    assert eight.metric("streamglm_pages_total") == total
    with ThreadPoolExecutor(8) as pool:
        last = [pool.submit(eight.complete, words(i, 9 + i), **greedy(300)) for i in range(8)]
        deadline = time.monotonic() + 20
        while len(lanes(eight)) < 8:
            assert time.monotonic() < deadline, "eight requests do not run at once"
        for one in last:
            one.result()


@pytest.mark.parametrize(("wait", "computed"), [("60", 1), ("0", 2)])
def test_a_second_request_waits_for_a_prefix_that_the_first_computes(
    wait: str, computed: int
) -> None:
    """J43: the prefix is computed once; with the wait at 0, by each."""
    prefix = words(43, 6400)
    asked = [prefix + words(430 + i, 20 + i) for i in range(2)]
    flags = ("--prefix-wait-seconds", wait, "--parallel", "2", "--pool-tokens", "32768")
    with serving("nano", *flags, "--kv-poison") as server, ThreadPoolExecutor(2) as pool:
        first = pool.submit(server.complete, asked[0], **greedy(6))
        until(server, len(asked[0]))
        second = pool.submit(server.complete, asked[1], **greedy(6))
        replies = [first.result(), second.result()]
        rows = server.metric("streamglm_prompt_tokens_total")
        assert rows // len(prefix) == computed
        assert (cached(replies[1]) > 0) == (computed == 1)
        again = [server.complete(one, **greedy(6)) for one in asked]
    assert [ids(one) for one in again] == [ids(one) for one in replies]


def test_background_yields_and_its_reply_is_the_same(eight: Server) -> None:
    """J41: a background prompt stands still while others fill, and starts none before them."""
    background = {"priority": "background", **greedy(40)}
    long = words(41, 6000)
    with ThreadPoolExecutor(5) as pool:
        slow = pool.submit(eight.complete, long, **background)
        until(eight, len(long))
        others: list[Future[dict[str, Any]]] = [
            pool.submit(eight.complete, words(410 + i, 1500 + i), **greedy(2)) for i in range(4)
        ]
        until(eight, 1500)
        before = lanes(eight)[len(long)]["position"]
        quick = [one.result() for one in others]
        lane = lanes(eight).get(len(long))
        assert lane is not None, "the background reply ended before the others"
        assert lane["position"] - before <= 6 * 256, "background rows went first"
        reply = slow.result()
    assert ids(eight.complete(long, **greedy(40))) == ids(reply)
    again = [ids(eight.complete(words(410 + i, 1500 + i), **greedy(2))) for i in range(4)]
    assert again == [ids(one) for one in quick]


@pytest.mark.parametrize("state", ["filling", "decoding", "waiting"])
def test_leaving_returns_what_was_borrowed_and_leased(eight: Server, state: str) -> None:
    """J42: in the prompt, in the reply, and in the queue for a prefix; nothing stays taken."""
    eight.wait_idle()
    prompt = words(42, 9000 if state != "decoding" else 200)
    with stream(eight, prompt, **greedy(2000)) as chunks:
        if state == "decoding":
            next(chunks)
        until(eight, len(prompt), state=state if state != "waiting" else "filling")
        if state == "waiting":
            with stream(eight, [*prompt, 7], **greedy(3)):
                deadline = time.monotonic() + 10
                while not eight.metric("streamglm_requests_waiting"):
                    assert time.monotonic() < deadline, "the same prompt did not wait"
            deadline = time.monotonic() + 10
            while eight.metric("streamglm_requests_waiting"):
                assert time.monotonic() < deadline, "it waits for nobody"
    eight.wait_idle()
    with eight.client() as client:
        pool = client.get("/v1/pool").json()
    assert not any(one["borrowed"] for one in pool["kept"])
    held = sum(one["tier"] == "shared" for one in pool["kept"])
    assert pool["slots_free"] + held == pool["slots"]
