"""What a reply looks like, streamed and not: the two never differ."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import pytest

from streamglm.request import Finished, FinishReason, Started, Tokens
from support.world import CHAT, COMPLETIONS, Make, World

SAID = "ok 🦉 早安 👩‍👩‍👧 é naïve ﷽ 🇵🇹 end"
THOUGHT = "weigh it</think>"


def joined(chunks: list[dict[str, Any]], name: str) -> str:
    """The streamed text of one field."""
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    if name == "text":
        return "".join(choice["text"] for choice in choices)
    return "".join(choice["delta"].get(name) or "" for choice in choices)


def finish_of(chunks: list[dict[str, Any]]) -> str:
    """The one finish reason of a stream."""
    found = [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"]]
    assert len(found) == 1
    assert isinstance(found[0], str)
    return found[0]


async def both(world: World, path: str = CHAT, **body: Any) -> dict[str, Any]:
    """The whole reply, after checking that the streamed one is the same."""
    body = {"seed": 1, "return_token_ids": True} | body
    whole = await world.whole(path, **body)
    chunks = await world.stream(path, stream_options={"include_usage": True}, **body)
    (choice,) = whole["choices"]
    assert finish_of(chunks) == choice["finish_reason"]
    if path == CHAT:
        assert joined(chunks, "content") == choice["message"]["content"]
        assert joined(chunks, "reasoning_content") == choice["message"].get("reasoning_content", "")
    else:
        assert joined(chunks, "text") == choice["text"]
    ids = [i for chunk in chunks for c in chunk["choices"] for i in c.get("token_ids", [])]
    assert ids == choice["token_ids"]
    assert chunks[-1]["usage"] == whole["usage"]
    assert chunks[-2]["streamglm"] == whole["streamglm"]
    return whole


async def test_characters_of_several_tokens_arrive_whole_at_every_cut(world: World) -> None:
    """CO-16: no half character in any chunk; a cut inside one looks the same in both modes."""
    count = world.say(SAID, end=False)
    for limit in range(1, count + 1):
        whole = await both(world, COMPLETIONS, prompt="say", max_tokens=limit)
        chunks = await world.stream(COMPLETIONS, prompt="say", max_tokens=limit)
        *texts, last = [chunk["choices"][0]["text"] for chunk in chunks]
        assert not any("\ufffd" in text for text in texts[:-1])
        assert last == ""
        assert SAID.startswith(whole["choices"][0]["text"].removesuffix("\ufffd"))


async def test_a_round_of_several_tokens_is_one_write(world: World) -> None:
    world.say("one two</think>three four", a_round=50)
    call = world.call(stream=True)
    await call.task
    comment, role, text, ending = call.writes
    assert comment.startswith(b":")
    assert b"assistant" in role
    assert (text.count(b"data: "), b"reasoning_content" in text) == (2, True)
    assert ending.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_stop_strings_spread_over_tokens(world: World, path: str) -> None:
    """CO-17."""
    text = "the quick brown fox jumps over the lazy dog"
    opened = THOUGHT if path == CHAT else ""
    world.say(opened + text)
    ask = {} if path == CHAT else {"prompt": "go"}

    def content(whole: dict[str, Any]) -> str:
        choice = whole["choices"][0]
        said = choice["message"]["content"] if path == CHAT else choice["text"]
        assert isinstance(said, str)
        return said

    never = text[10:20] + "\u2603"
    for stops in ("rown fox", ["rown fox"], [never, "rown fox"]):
        whole = await both(world, path, stop=stops, **ask)
        assert content(whole) == "the quick b"
        assert whole["choices"][0]["finish_reason"] == "stop"
        assert world.engine.replies[-1].stops > 0
    whole = await both(world, path, stop=never, **ask)
    assert content(whole) == text


async def test_ids_after_a_stop_string_are_not_part_of_the_reply(world: World) -> None:
    """The engine may have drawn more in the same round."""
    world.say("one two three", a_round=99)
    whole = await both(world, COMPLETIONS, prompt="go", stop="tw")
    ids = whole["choices"][0]["token_ids"]
    assert "tw" in world.tokenizer.decode(ids)
    assert "thr" not in world.tokenizer.decode(ids)
    assert whole["usage"]["completion_tokens"] == len(ids)


@pytest.mark.parametrize(
    ("said", "reasoning", "content"),
    [
        ("plan a</think>answer b", "plan a", "answer b"),
        ("x</thi y</think>z", "x</thi y", "z"),
        ("a\n</think>\n\nb", "a\n", "\n\nb"),
        ("The answer is 7.", "The answer is 7.", ""),
    ],
)
@pytest.mark.parametrize("a_round", [1, 2, 3, 8, 99])
async def test_reasoning_is_split_from_the_answer(
    world: World, said: str, reasoning: str, content: str, a_round: int
) -> None:
    """CO-22 and CO-23: the prompt opened the block, so the model only closes it."""
    world.say(said, a_round=a_round)
    whole = await both(world)
    message = whole["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == (reasoning, content)
    assert whole["choices"][0]["finish_reason"] == "stop"
    assert whole["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


async def test_with_thinking_off_there_is_no_reasoning(world: World) -> None:
    world.say("answer b")
    whole = await both(world, chat_template_kwargs={"enable_thinking": False})
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": "answer b"}
    assert whole["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0


async def test_thinking_cut_by_the_limit_is_reasoning_and_length(world: World) -> None:
    world.say("a long thought that goes on")
    whole = await both(world, max_tokens=5)
    choice = whole["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["reasoning_content"]
    assert choice["message"]["content"] == ""


async def test_a_completion_is_not_split(world: World) -> None:
    world.say("a</think>b")
    whole = await both(world, COMPLETIONS, prompt="go")
    assert whole["choices"][0]["text"] == "a</think>b"


async def test_deltas_have_the_shape_that_clients_check(world: World) -> None:
    """CO-20."""
    world.say(THOUGHT + "hello")
    chunks = await world.stream()
    first = chunks[0]["choices"][0]["delta"]
    assert first == {"role": "assistant", "content": ""}
    assert len({(c["id"], c["created"], c["model"], c["system_fingerprint"]) for c in chunks}) == 1
    assert {c["object"] for c in chunks} == {"chat.completion.chunk"}
    assert all(c["choices"][0]["index"] == 0 for c in chunks)
    assert all("usage" not in c for c in chunks)
    assert finish_of(chunks) == "stop"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    again = await world.stream()
    assert again[0]["id"] != chunks[0]["id"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_usage_is_on_every_path(world: World, path: str) -> None:
    """CO-24."""
    count = world.say("ab", cached=3)
    ask = {} if path == CHAT else {"prompt": "hello there"}
    whole = await both(world, path, **ask)
    usage = whole["usage"]
    rendered = await world.http.post("/tokenize", json=ask or {"messages": [_hi()]})
    assert usage["prompt_tokens"] == rendered.json()["count"] == len(whole["prompt_token_ids"])
    assert usage["completion_tokens"] == count
    assert usage["total_tokens"] == usage["prompt_tokens"] + count
    assert usage["prompt_tokens_details"] == {"cached_tokens": 3}
    chunks = await world.stream(path, stream_options={"include_usage": True}, **ask)
    assert [i for i, chunk in enumerate(chunks) if not chunk["choices"]] == [len(chunks) - 1]
    assert all("usage" not in chunk for chunk in chunks[:-1])


def _hi() -> dict[str, str]:
    return {"role": "user", "content": "hi"}


async def test_the_figures_of_a_reply(world: World) -> None:
    world.say("abc")
    whole = await both(world, COMPLETIONS, prompt=[1, 2], seed=77)
    ids = whole["choices"][0]["token_ids"]
    packed = b"".join(struct.pack("<I", token) for token in ids)
    assert whole["streamglm"] == {
        "token_sha": hashlib.sha256(packed).hexdigest(),
        "seed": 77,
        "drafted": 0,
        "accepted": 0,
        "rounds": 7,
        "queue_seconds": 0.25,
        "prefill_seconds": 0.5,
        "decode_seconds": 1.5,
    }
    assert ids[-1] == world.end
    assert whole["prompt_token_ids"] == [1, 2]


async def test_token_ids_are_named_only_on_request(world: World) -> None:
    world.say("abc")
    whole = await world.whole()
    assert "prompt_token_ids" not in whole
    assert "token_ids" not in whole["choices"][0]
    for path, ask in ((CHAT, {}), (COMPLETIONS, {"prompt": "x"})):
        plain = await world.stream(path, **ask)
        assert not any("token_ids" in c for chunk in plain for c in chunk["choices"])
        named = await world.stream(path, return_token_ids=True, **ask)
        assert "prompt_token_ids" in named[0]
        assert not any("prompt_token_ids" in chunk for chunk in named[1:])


async def test_a_model_without_tokenizer_serves_ids(make: Make) -> None:
    world = make(text=False)
    world.engine.script = lambda _: [
        Started(0),
        Tokens((5, 6)),
        Tokens((7,)),
        Finished(FinishReason.LENGTH),
    ]
    whole = await both(world, COMPLETIONS, prompt=[1, 2, 3], max_tokens=3)
    assert whole["choices"][0]["token_ids"] == [5, 6, 7]
    assert whole["choices"][0]["text"] == ""
    assert (await world.refused(path=COMPLETIONS, prompt="text"))["param"] == "prompt"
    assert (await world.refused(path=COMPLETIONS, prompt=[1], stop="x"))["param"] == "stop"
    assert (await world.refused())["param"] == "messages"
    assert (await world.http.post("/detokenize", json={"tokens": [1]})).status_code == 400


async def test_ignored_end_tokens_are_drawn_past(world: World) -> None:
    ids = [*world.tokenizer.encode("a"), world.end, *world.tokenizer.encode("b")]
    world.say(world.tokenizer.decode(ids))
    ended = await both(world, COMPLETIONS, prompt="x")
    assert ended["choices"][0]["text"] == "a"
    ignored = await both(world, COMPLETIONS, prompt="x", ignore_eos=True, max_tokens=3)
    assert ignored["choices"][0]["text"] == "ab"
    assert ignored["choices"][0]["token_ids"] == ids
    assert ignored["choices"][0]["finish_reason"] == "length"
