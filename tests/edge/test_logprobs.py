"""Log-probabilities in OpenAI's shapes: one entry a token, streamed and not alike (CO-28).

Red without: the cut at the stop string in `Telling` (more entries than tokens), the count in
`EventStream` (entries twice), the running offset in `TextLogprobs` (offsets of a stream restart).
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from streamglm.edge.logprobs import LEAST, ChatLogprobs, Named, TextLogprobs
from streamglm.request import Event, Finished, FinishReason, Request, Started, Tokens
from streamglm.step import LogProbs
from streamglm.text.tokenizer import Tokenizer
from support.engine import logprobs_at
from support.world import CHAT, COMPLETIONS, Make, World

SAID = "ok 🦉 早安 é</think>the quick 🇵🇹 fox"
FIELDS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


def ask(path: str, count: int = 3) -> dict[str, Any]:
    """A request for log-probabilities on a route."""
    both = {"seed": 1, "return_token_ids": True}
    if path == CHAT:
        return {"logprobs": True, "top_logprobs": count} | both
    return {"prompt": "say", "logprobs": count} | both


def joined(chunks: list[dict[str, Any]], path: str) -> dict[str, Any]:
    """The `logprobs` of a stream's chunks as one."""
    found = [c["logprobs"] for chunk in chunks for c in chunk["choices"] if c["logprobs"]]
    if path == CHAT:
        return {"content": [e for one in found for e in one["content"]], "refusal": None}
    return {name: [item for one in found for item in one[name]] for name in FIELDS}


async def test_a_chat_has_one_entry_a_token(world: World) -> None:
    count = world.say(SAID)
    whole = await world.whole(**ask(CHAT))
    (choice,) = whole["choices"]
    entries = choice["logprobs"]["content"]
    assert choice["logprobs"]["refusal"] is None
    assert len(entries) == count == whole["usage"]["completion_tokens"] == len(choice["token_ids"])
    for place, (token, entry) in enumerate(zip(choice["token_ids"], entries, strict=True)):
        told = logprobs_at(place, token, 3)
        assert set(entry) == {"token", "logprob", "bytes", "top_logprobs"}
        assert entry["logprob"] == told.logprob
        assert [one["logprob"] for one in entry["top_logprobs"]] == [x for _, x in told.top]
        assert all(set(one) == {"token", "logprob", "bytes"} for one in entry["top_logprobs"])
        assert bytes(entry["bytes"]) == world.tokenizer.said(token)
    message = choice["message"]
    text = b"".join(bytes(entry["bytes"]) for entry in entries).decode()
    assert text == message["reasoning_content"] + "</think>" + message["content"] == SAID
    assert entries[-1]["token"] == world.tokenizer.decode([world.end])
    assert entries[-1]["bytes"] == []


async def test_parts_of_a_character_have_their_own_bytes(world: World) -> None:
    world.say("🦉", end=False)
    whole = await world.whole(**ask(CHAT))
    entries = whole["choices"][0]["logprobs"]["content"]
    assert len(entries) > 1
    assert b"".join(bytes(entry["bytes"]) for entry in entries) == "🦉".encode()
    assert all("\ufffd" in entry["token"] for entry in entries)
    text = (await world.whole(COMPLETIONS, **ask(COMPLETIONS)))["choices"][0]["logprobs"]
    assert "".join(text["tokens"]).replace("bytes:", "") == "\\xf0\\x9f\\xa6\\x89"
    assert text["text_offset"] == [0] * len(entries)


async def test_a_completion_has_four_lists(world: World) -> None:
    count = world.say("the quick 早 fox", end=False)
    whole = await world.whole(COMPLETIONS, **ask(COMPLETIONS, 2))
    (choice,) = whole["choices"]
    found = choice["logprobs"]
    assert set(found) == set(FIELDS)
    assert {len(found[name]) for name in FIELDS} == {count}
    ids = choice["token_ids"]
    assert found["token_logprobs"] == [logprobs_at(i, t, 2).logprob for i, t in enumerate(ids)]
    for token, logprob, top in zip(
        found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True
    ):
        assert top[token] == logprob
        assert 2 <= len(top) <= 3
    for token, at in zip(found["tokens"], found["text_offset"], strict=True):
        if not token.startswith("bytes:"):
            assert choice["text"][at:].startswith(token)


async def test_no_alternatives_are_no_alternatives(world: World) -> None:
    world.say("abc")
    whole = await world.whole(logprobs=True)
    entries = whole["choices"][0]["logprobs"]["content"]
    assert all(entry["top_logprobs"] == [] for entry in entries)
    text = (await world.whole(COMPLETIONS, prompt="x", logprobs=0))["choices"][0]["logprobs"]
    assert [set(top) for top in text["top_logprobs"]] == [{token} for token in text["tokens"]]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_nothing_is_told_unasked(world: World, path: str) -> None:
    world.say("abc")
    given = {} if path == CHAT else {"prompt": "x"}
    assert (await world.whole(path, **given))["choices"][0]["logprobs"] is None
    named = await world.stream(path, return_token_ids=True, **given)
    assert all(c["logprobs"] is None for chunk in named for c in chunk["choices"])
    told = await world.stream(path, **given, logprobs=True if path == CHAT else 1)
    assert not any("token_ids" in c for chunk in told for c in chunk["choices"])


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_entries_keep_step_with_ids_in_every_chunk(world: World, path: str) -> None:
    world.say(SAID, a_round=3)
    chunks = await world.stream(path, stop=["quick brown"], **ask(path))
    seen = 0
    for choice in (c for chunk in chunks for c in chunk["choices"]):
        ids, told = choice.get("token_ids", []), choice["logprobs"]
        entries = (told or {}).get("content" if path == CHAT else "tokens", [])
        assert len(entries) == len(ids)
        seen += len(ids)
    assert seen == len(world.tokenizer.encode(SAID)) + 1


async def test_a_round_without_text_tells_its_entry_at_once(world: World) -> None:
    count = world.say("🦉", end=False)
    chunks = await world.stream(logprobs=True)
    told = [c["logprobs"] for chunk in chunks for c in chunk["choices"] if c["logprobs"]]
    assert [len(one["content"]) for one in told] == [1] * count
    assert count > 1


def cut(ids: list[int], told: list[LogProbs], ends: list[int]) -> list[Event]:
    """A reply of `ids` in rounds that end at `ends`."""
    bounds = sorted({0, len(ids), *(end % (len(ids) + 1) for end in ends)})
    pairs = itertools.pairwise(bounds)
    rounds = [Tokens(tuple(ids[a:b]), tuple(told[a:b])) for a, b in pairs]
    return [Started(0), *rounds, Finished(FinishReason.LENGTH)]


@hypothesis.settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(
    path=st.sampled_from([CHAT, COMPLETIONS]),
    ends=st.lists(st.integers(0, 60), max_size=20),
    stop=st.sampled_from([None, "fox", "qu", "quick 🇵", "e", "é", "never"]),
    count=st.integers(0, 4),
)
def test_every_split_tells_the_same(
    make: Make, path: str, ends: list[int], stop: str | None, count: int
) -> None:
    """The whole reply in one round is the measure of streams and whole replies in any rounds."""
    world = make()
    ids = world.tokenizer.encode(SAID)
    told = [logprobs_at(place, token, count) for place, token in enumerate(ids)]
    body = ask(path, count) | ({} if stop is None else {"stop": stop})

    def script(ends: list[int]) -> None:
        def events(request: Request) -> list[Event]:
            assert request.sampling.logprobs == count
            return cut(ids, told, ends)

        world.engine.script = events

    async def run() -> None:
        script([])
        measure = (await world.whole(path, **body))["choices"][0]
        script(ends)
        whole = (await world.whole(path, **body))["choices"][0]
        chunks = await world.stream(path, **body)
        assert whole == measure
        assert joined(chunks, path) == measure["logprobs"]
        names = [i for chunk in chunks for c in chunk["choices"] for i in c.get("token_ids", [])]
        assert names == measure["token_ids"]

    asyncio.run(run())


async def test_a_stop_string_cuts_entries_where_it_cuts_ids(world: World) -> None:
    world.say("one two three", a_round=99)
    (choice,) = (await world.whole(COMPLETIONS, stop="tw", **ask(COMPLETIONS)))["choices"]
    assert choice["text"] == "one "
    assert {len(choice["logprobs"][name]) for name in FIELDS} == {len(choice["token_ids"])}


async def test_a_model_without_tokenizer_tells_numbers(make: Make) -> None:
    world = make(text=False)
    told = (LogProbs(-0.5, ((5, -0.5), (9, -1.5))),)
    world.engine.script = lambda _: [Started(0), Tokens((5,), told), Finished(FinishReason.LENGTH)]
    whole = await world.whole(COMPLETIONS, prompt=[1, 2], logprobs=2, max_tokens=1)
    assert whole["choices"][0]["logprobs"] == {
        "text_offset": [0],
        "token_logprobs": [-0.5],
        "tokens": ["token_id:5"],
        "top_logprobs": [{"token_id:5": -0.5, "token_id:9": -1.5}],
    }


@pytest.mark.parametrize("value", [float("-inf"), float("nan"), -1e300])
def test_what_json_cannot_hold_is_the_least(tokenizer: Tokenizer, value: float) -> None:
    named = Named([40], [LogProbs(value, ((41, value),))])
    (entry,) = ChatLogprobs(tokenizer).shape(named)["content"]
    assert entry["logprob"] == entry["top_logprobs"][0]["logprob"] == LEAST
    assert TextLogprobs(tokenizer, frozenset()).shape(named)["token_logprobs"] == [LEAST]
