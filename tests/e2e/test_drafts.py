"""Drafts change speed and nothing else: through HTTP and a real rank, poisoned pages, by ids, text,
end, usage and log-probabilities (CO-26, CO-27, CO-28).

The server here drafts four tokens in every window, true or not, so that rows are rejected all the
time; what comes true comes from replies of few ids. `draft: false` beside it is the reference. That
each piece of a rollback counts is shown in tests/model and tests/core, by taking it away.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.draft_cases import TOLERANCE, Body, ask, compare, difference
from support.server import Server, serving


@pytest.fixture(scope="module")
def drafting() -> Iterator[Server]:
    with serving("nano", "--parallel", "8", "--kv-poison", "--drafts", "4") as server:
        yield server


def prompt(seed: int, length: int = 90) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(300) for _ in range(length)]


FEW: Body = {"logit_bias": {"104": 100, "105": 100}, "temperature": 0.3, "seed": 3}
"""Two ids alone, so that many drafts come true."""


@pytest.mark.slow
def test_replies_are_those_without_drafts(drafting: Server) -> None:
    """A mixture of everything, beside 0 to 7 others."""
    tally = compare(drafting, seed=5, count=32)
    assert tally.wrong > 12, "no draft was ever false"
    assert tally.accepted > 10, "no draft ever came true"
    assert min(tally.stopped, tally.cut, tally.resumed) > 4
    drafting.wait_idle()


@pytest.mark.slow
@pytest.mark.parametrize("more", [{"temperature": 0}, {"temperature": 0.8, "seed": 5}, FEW])
def test_stops_and_limits_inside_a_run(drafting: Server, more: Body) -> None:
    """CO-26: each limit, with a stop from the reply's own text at token positions 1 to 8; the
    second time from a kept prompt."""
    asked: Body = {"prompt": prompt(1, 150), "ignore_eos": True} | more
    whole = ask(drafting, asked | {"max_tokens": 64}, draft=False)
    ids = whole["choices"][0]["token_ids"]
    decoded = [_text(drafting, ids[:count]) for count in range(9)]
    limits = (1, 2, 3, 7, 8, 9, 64)
    places = itertools.cycle(range(1, 9))
    for limit, place in ((limit, next(places)) for limit in limits for _ in range(2)):
        stop = decoded[place][len(decoded[place - 1]) :] or decoded[place][-1:]
        if not stop.strip():
            continue
        body = asked | {"max_tokens": limit, "stop": stop}
        plain, drafted = (ask(drafting, body, draft=draft) for draft in (False, True))
        assert difference(plain, drafted) is None, f"{stop!r} within {limit}"
        used = drafted["usage"]["completion_tokens"]
        assert used <= limit
        cut = ask(drafting, asked | {"max_tokens": limit}, draft=False)["choices"][0]["text"]
        assert drafted["choices"][0]["finish_reason"] == ("stop" if stop in cut else "length")


def _text(server: Server, ids: list[int]) -> str:
    text = server.post("/detokenize", {"tokens": ids})["prompt"]
    assert isinstance(text, str)
    return text


def test_a_seeded_reply_beside_strangers_with_drafts(drafting: Server) -> None:
    """CO-27: alone three times, beside unseeded and otherwise seeded streams, while a long prompt
    fills, and after a resume."""
    asked: Body = {"prompt": prompt(2, 300), "temperature": 0.9, "top_p": 0.95, "seed": 42}
    asked |= {"max_tokens": 48, "ignore_eos": True, "logprobs": 3}
    plain = ask(drafting, asked, draft=False)
    for _ in range(3):
        assert difference(plain, ask(drafting, asked, draft=True)) is None
    long: Body = {"prompt": prompt(3, 1500), "max_tokens": 4}
    others = [{"prompt": prompt(4 + i), "max_tokens": 24, "ignore_eos": True} for i in range(7)]
    for strangers in (others, [one | {"seed": i} for i, one in enumerate(others)], [long]):
        with ThreadPoolExecutor(8) as pool:
            running = [pool.submit(drafting.complete, **one) for one in strangers]
            reply = pool.submit(ask, drafting, asked, draft=True).result()
            for one in running:
                one.result()
        assert difference(plain, reply) is None
    assert difference(plain, ask(drafting, asked | {"seed": 43}, draft=True)) is not None


@pytest.mark.parametrize("more", [{"temperature": 0}, {"temperature": 1.0, "seed": 9}, FEW])
def test_log_probabilities_with_drafts(drafting: Server, more: Body) -> None:
    """CO-28: one entry a token, its own, streamed and whole, with drafts and without."""
    messages = [{"role": "user", "content": "say 😀 twice"}]
    fields: Body = {"max_tokens": 40, "ignore_eos": True, "logprobs": True, "top_logprobs": 3}
    fields |= more
    whole = [drafting.chat(messages, draft=draft, **fields) for draft in (False, True)]
    assert whole[1]["streamglm"]["drafted"] > 0
    plain, drafted = (reply["choices"][0]["logprobs"]["content"] for reply in whole)
    streamed = [
        _streamed(drafting, {"messages": messages, "draft": draft, **fields})
        for draft in (False, True)
    ]
    assert whole[0]["choices"][0]["token_ids"] == whole[1]["choices"][0]["token_ids"]
    assert len(drafted) == whole[1]["usage"]["completion_tokens"] == 40
    for entries in (drafted, *streamed):
        assert [one["token"] for one in entries] == [one["token"] for one in plain]
        for one, two in zip(plain, entries, strict=True):
            assert one["logprob"] == pytest.approx(two["logprob"], abs=TOLERANCE)
            values = [other["logprob"] for other in two["top_logprobs"]]
            assert len(values) == 3
            assert values == sorted(values, reverse=True)
            if more == {"temperature": 0}:
                assert two["token"] == two["top_logprobs"][0]["token"]
    said = b"".join(bytes(one["bytes"]) for one in drafted)
    ids = whole[1]["choices"][0]["token_ids"]
    assert said.decode(errors="replace") == _text(drafting, ids)
    assert len({one["logprob"] for one in drafted}) > 3 or more is FEW


def _streamed(server: Server, body: Body) -> list[Any]:
    entries: list[Any] = []
    with server.client() as client:
        with client.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as answer:
            for line in answer.iter_lines():
                if not line.startswith("data: {"):
                    continue
                for choice in json.loads(line.removeprefix("data: "))["choices"]:
                    entries += (choice.get("logprobs") or {}).get("content") or []
    return entries


def test_numbers_of_a_reply_and_of_the_server(drafting: Server) -> None:
    before = [drafting.metric(f"streamglm_{name}_tokens_total") for name in ("drafted", "accepted")]
    asked: Body = {"prompt": prompt(6), "max_tokens": 50, "ignore_eos": True}
    reply = ask(drafting, asked | FEW, draft=True)
    figures = reply["streamglm"]
    assert figures["drafted"] > figures["accepted"] / 2 > 0
    assert 1 + figures["rounds"] + figures["accepted"] == 50
    assert figures["rounds"] < 40
    after = [drafting.metric(f"streamglm_{name}_tokens_total") for name in ("drafted", "accepted")]
    assert after[0] - before[0] == figures["drafted"]
    assert after[1] - before[1] == figures["accepted"]
    assert drafting.metric("streamglm_draft_seconds_total") > 0


def test_a_reader_who_leaves_in_the_middle_of_a_run_gives_everything_back(
    drafting: Server,
) -> None:
    asked = {"prompt": prompt(7), "max_tokens": 400, "ignore_eos": True, "stream": True}
    for _ in range(4):
        with drafting.client() as client:
            with client.stream("POST", "/v1/completions", json=asked | FEW) as answer:
                for _, line in zip(range(6), answer.iter_lines(), strict=False):
                    assert line is not None
    drafting.wait_idle()


@pytest.mark.slow
def test_without_drafts_no_memory_is_taken_for_them_and_replies_are_the_same(
    drafting: Server,
) -> None:
    """The start line of `--drafts 0` has smaller pages: no cache of the next-token layer."""
    with serving("nano", "--parallel", "8", "--drafts", "0", "--pool-tokens", "16384") as plain:
        asked: Body = {"prompt": prompt(8, 200), "max_tokens": 40, "temperature": 0}
        assert difference(ask(plain, asked, draft=True), ask(drafting, asked, draft=True)) is None
        assert ask(plain, asked, draft=True)["streamglm"]["drafted"] == 0
        assert _page_bytes(plain) < _page_bytes(drafting)


def _page_bytes(server: Server) -> float:
    """Bytes of a page, by the start line: bytes of the pool over its pages."""
    line = next(line for line in server.lines if "memory: " in line)
    pool = line.partition("pool ")[2]
    size = int(pool.partition("(")[2].partition(" bytes")[0].replace(",", ""))
    pages = int(pool.partition("): ")[2].partition(" pages")[0].replace(",", ""))
    return size / pages
