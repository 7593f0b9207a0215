"""One pool for all, through HTTP and real ranks: plan, pressure, kept states, refusals.

Servers are small, so that kept states fill the pool. With eviction removed the requests of CO-11
wait for ever; with the sums left out the requests of CO-12 do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.server import Server, refused, serving
from support.talk import cached, greedy, ids, stream, words

PAGE = 64


@pytest.fixture(scope="module")
def small() -> Iterator[Server]:
    """A pool of 64 pages."""
    flags = ("--context", "4096", "--pool-tokens", "4096", "--parallel", "8", "--kv-poison")
    with serving("nano", *flags) as server:
        yield server


def pool(server: Server) -> dict[str, Any]:
    with server.client() as client:
        value = client.get("/v1/pool").json()
    assert isinstance(value, dict)
    return value


def test_a_pool_full_of_kept_prompts_serves_on_and_forgets_the_oldest(small: Server) -> None:
    """CO-11."""
    prompts = [words(seed, 500) for seed in range(40)]
    first = [small.complete(prompt, **greedy(16)) for prompt in prompts]
    full = pool(small)
    assert full["pages"][0]["kept"] > 40
    assert small.metric("streamglm_evicted_total") > 20
    with ThreadPoolExecutor(4) as four:
        wide = list(four.map(lambda s: small.complete(words(s, 500), **greedy(300)), range(50, 54)))
    assert {reply["choices"][0]["finish_reason"] for reply in (*first, *wide)} == {"length"}
    newest = small.complete(words(53, 500), **greedy(16))
    assert cached(newest) > 0
    again = small.complete(prompts[0], **greedy(16))
    assert ids(again) == ids(first[0])
    assert cached(again) == 0, "the oldest prompt is kept, and younger ones are gone"
    small.wait_idle()
    assert sum(one["leased"] for one in pool(small)["pages"]) == 0


@pytest.mark.parametrize(("length", "new"), [(3000, 16), (1900, 1000)])
def test_a_request_that_can_never_fit_is_refused_with_its_sums(length: int, new: int) -> None:
    """CO-12, beside a reply that runs and before one that fits."""
    flags = ("--context", "8192", "--pool-tokens", "2048", "--parallel", "4", "--kv-poison")
    with serving("nano", *flags) as server:
        alone = ids(server.complete(words(1, 40), **greedy(60)))
        with stream(server, words(1, 40), **greedy(60)) as chunks:
            next(chunks)
            body = {"prompt": words(2, length), **greedy(new)}
            with server.client() as client:
                answer = client.post("/v1/completions", json=body)
            assert 400 <= answer.status_code < 600
            message = answer.json()["error"]["message"]
            pages = -(-(length + new) // PAGE)
            for number in (length, new, pages, 2048, pages * PAGE):
                assert str(number) in message, message
            normal = server.complete(words(3, 60), **greedy(8))
            beside = [token for chunk in chunks for token in chunk]
        assert beside == alone[-len(beside) :]
        assert ids(normal) == ids(server.complete(words(3, 60), **greedy(8)))


def test_windows_and_pages_give_the_same_replies(small: Server) -> None:
    """J1: a pool of pages in use, beside one window a lane (`--kv-pages off`)."""
    lengths = (1, 63, 64, 65, 131, 132, 256, 257, 700)
    asked = [{"prompt": words(90 + n, n), **greedy(12)} for n in lengths]
    with serving("nano", "--kv-pages", "off", "--context", "2048", "--parallel", "2") as windows:
        want = [ids(windows.complete(**one)) for one in asked]
        resumed = windows.complete(**asked[-1])
    with ThreadPoolExecutor(8) as eight:
        got = list(eight.map(lambda one: ids(small.complete(**one)), asked))
    assert got == want
    assert ids(resumed) == want[-1]
    assert cached(resumed) > 0, "windows keep copies"


def test_a_kept_prompt_of_sixteen_pages_costs_its_slot_or_its_rows() -> None:
    """J28, by what the server says of its states; `streamglm check` measures the tensors. Shared:
    the slot, and no page beyond those that the lane has filled. Copied: the bytes are linear in
    the position, and no page stays."""
    prompt = words(5, 16 * PAGE + 1)
    with serving("nano", "--pool-tokens", "8192") as shared:
        shared.complete(prompt, **greedy(1))
        after = pool(shared)
        states = sorted(after["kept"], key=lambda state: int(state["tokens"]))
        assert [state["tier"] for state in states] == ["shared"] * len(states)
        assert len({state["bytes"] for state in states}) == 1
        assert states[-1]["tokens"] == 16 * PAGE
        assert after["pages"][0]["kept"] == 16
    with serving("nano", "--pool-tokens", "8192", "--kv-share", "0") as copied:
        for pages in (4, 8, 16):
            copied.complete(words(50 + pages, pages * PAGE + 1), **greedy(1))
        after = pool(copied)
        assert after["pages"][0]["kept"] == 0
        size = {int(state["tokens"]): int(state["bytes"]) for state in after["kept"]}
        slope = (size[16 * PAGE] - size[4 * PAGE]) // (12 * PAGE)
        assert size[8 * PAGE] - size[4 * PAGE] == 4 * PAGE * slope
        assert size[4 * PAGE] - 4 * PAGE * slope == states[0]["bytes"]


def test_two_heirs_outlive_the_state_that_they_came_from() -> None:
    """J39: both resume from one state, which gives up its slot while they run. A drop that frees
    pages which leases still hold turns the heirs' replies, and the book says so when idle."""
    base = words(7, 200)
    heirs = [base + words(70 + i, 30) for i in range(2)]
    flags = ("--kv-share", "2", "--pool-tokens", "4096", "--context", "2048", "--parallel", "4")
    with serving("nano", *flags, "--kv-poison") as server:
        server.complete(base, **greedy(1))
        with (
            stream(server, heirs[0], **greedy(800)) as one,
            stream(server, heirs[1], **greedy(800)) as two,
        ):
            got = [list(next(one)), list(next(two))]
            assert pool(server)["kept"][0]["tokens"] == 192
            for seed in range(100, 105):
                server.complete(words(seed, 500), **greedy(1))
            assert [state["tokens"] for state in pool(server)["kept"]] == [448, 448]
            assert len(pool(server)["lanes"]) == 2, "the heirs ended too early to show anything"
            for tokens, chunks in zip(got, (one, two), strict=True):
                tokens += [token for chunk in chunks for token in chunk]
        server.wait_idle()
    with serving("nano", "--prompt-cache-gib", "0") as fresh:
        assert got == [ids(fresh.complete(heir, **greedy(800))) for heir in heirs]


def test_the_start_line_tells_what_is_served(small: Server) -> None:
    """J17: a rank that allocates other bytes than the line says does not start (`hold_to`)."""
    line = next(line for line in small.lines if " memory: " in line)
    assert "64 pages of 64 rows, 4,096 tokens" in line
    found = re.search(r"kept states .*: (\d+) of (\d+) slots", line)
    assert found is not None
    assert pool(small)["slots"] == int(found[1])


@pytest.mark.parametrize(
    "flags",
    [
        ("--pool-tokens", "99999999999"),
        ("--pool-tokens", "10"),
        ("--context", "1000000"),
        ("--kv-share", "8", "--kv-pages", "off"),
    ],
    ids=" ".join,
)
def test_the_remedy_that_a_refusal_names_starts(flags: tuple[str, ...]) -> None:
    """J18, with the first remedy of each."""
    ended = refused("nano", *flags)
    assert ended.returncode == 1
    found = re.findall(r"`(--[a-z-]+ [^`]+)`", ended.stderr.rpartition("Start with ")[2])
    assert found, ended.stderr
    changed = dict(zip(flags[::2], flags[1::2], strict=True))
    flag, _, value = found[0].partition(" ")
    changed[flag] = value
    with serving("nano", *(part for pair in changed.items() for part in pair)) as server:
        assert len(ids(server.complete(words(1, 5), **greedy(2)))) == 2
