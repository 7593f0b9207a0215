"""A resumed reply equals a fresh one, through HTTP and real ranks (CO-01 to CO-04).

The reference is a server that keeps nothing (`--prompt-cache-gib 0`): with it in place of the
keeping one, `cached_tokens` is 0 and every test here fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.server import Server, serving
from support.talk import cached, ids, words

PAGE = 64
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True, "max_tokens": 24}


@pytest.fixture(scope="module")
def keeping() -> Iterator[Server]:
    with serving("nano", "--parallel", "8", "--kv-poison") as server:
        yield server


@pytest.fixture(scope="module")
def fresh() -> Iterator[Server]:
    """Keeps nothing, so every reply is computed whole."""
    with serving("nano", "--prompt-cache-gib", "0", "--kv-poison") as server:
        yield server


@pytest.mark.parametrize(
    "length",
    [63, 64, 65, 127, 128, 129, 255, 256, 257, 769],  # around a page, two, a chunk, three
)
def test_a_longer_prompt_resumes_on_both_sides_of_every_boundary(
    keeping: Server, fresh: Server, length: int
) -> None:
    first = words(length, length)
    longer = first + words(length + 1, 7)
    keeping.complete(first, **GREEDY)
    resumed = keeping.complete(longer, **GREEDY)
    assert ids(resumed) == ids(fresh.complete(longer, **GREEDY))
    assert cached(resumed) <= length
    assert cached(resumed) > 0 or length <= PAGE


def test_the_same_prompt_three_times(keeping: Server, fresh: Server) -> None:
    for length in range(595, 605):
        prompt = words(1000 + length, length)
        want = ids(fresh.complete(prompt, **GREEDY))
        replies = [keeping.complete(prompt, **GREEDY) for _ in range(3)]
        assert [ids(reply) for reply in replies] == [want] * 3
        assert cached(replies[0]) == 0
        assert all(0 < cached(reply) <= length - 1 for reply in replies[1:])


def test_an_edited_turn_and_a_regenerated_one(keeping: Server, fresh: Server) -> None:
    user = " ".join(f"w{i:05}" for i in range(120))
    turn1 = [{"role": "user", "content": user}]
    said = keeping.chat(turn1, **GREEDY)["choices"][0]["message"]["content"] or "yes"
    turn2 = [*turn1, {"role": "assistant", "content": said}, {"role": "user", "content": "w00017?"}]
    keeping.chat(turn2, **GREEDY)
    edited = [{"role": "user", "content": user.replace("w00080", "x00080")}, *turn2[1:]]
    last = [*turn2[:-1], {"role": "user", "content": "and w00018?"}]
    for messages in (turn1, edited, last):
        got = keeping.chat(messages, **GREEDY)
        want = fresh.chat(messages, **GREEDY)
        assert ids(got) == ids(want)
        if messages is edited:
            shared = zip(got["prompt_token_ids"], prompt_ids(keeping, turn2), strict=False)
            edit = next(i for i, (a, b) in enumerate(shared) if a != b)
            assert cached(got) <= edit
        else:
            assert cached(got) > 0


def prompt_ids(server: Server, messages: list[dict[str, Any]]) -> list[int]:
    """The prompt of `messages`, as ids."""
    value = server.post("/tokenize", {"messages": messages})["tokens"]
    assert isinstance(value, list)
    return value


def test_an_edited_last_turn_resumes_where_it_begins(keeping: Server, fresh: Server) -> None:
    """Without a mark at the turn nothing lies before the edit but the prompt's end behind it."""
    head = [
        {"role": "user", "content": " ".join(f"a{i:04}" for i in range(60))},
        {"role": "assistant", "content": " ".join(f"b{i:04}" for i in range(40))},
    ]
    asked, edited = (
        [*head, {"role": "user", "content": f"{first} " + " ".join(f"c{i:04}" for i in range(90))}]
        for first in ("before", "after")
    )
    keeping.chat(asked, **GREEDY)
    got = keeping.chat(edited, **GREEDY)
    assert ids(got) == ids(fresh.chat(edited, **GREEDY))
    both = zip(got["prompt_token_ids"], prompt_ids(keeping, asked), strict=False)
    shared = next(i for i, (a, b) in enumerate(both) if a != b)
    assert shared - 2 * PAGE < cached(got) <= shared


def test_eight_conversations_on_one_system_prompt(keeping: Server, fresh: Server) -> None:
    system = {"role": "system", "content": " ".join(f"s{i:04}" for i in range(150))}

    def ask(server: Server, number: int) -> dict[str, Any]:
        user = {"role": "user", "content": f"Remember code Q-{number}. " + "x " * number}
        return server.chat([system, user], **GREEDY)

    want = [ids(ask(fresh, number)) for number in range(8)]
    for turn in range(3):
        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda number: ask(keeping, number), range(8)))
        assert [ids(reply) for reply in replies] == want
        assert sum(cached(reply) > 0 for reply in replies) >= (7 if turn else 0)


def test_a_kept_prompt_has_its_first_token_sooner(keeping: Server) -> None:
    """No bound on a speed: a resume computes a page at most, and the prompt pass says so."""
    prompt = words(77, 2000)
    cold = keeping.complete(prompt, **GREEDY | {"max_tokens": 1})
    warm = keeping.complete(prompt, **GREEDY | {"max_tokens": 1})
    assert cached(cold) == 0
    assert cached(warm) >= 2000 - PAGE
    seconds = [reply["streamglm"]["prefill_seconds"] for reply in (cold, warm)]
    assert seconds[1] < seconds[0]


def test_a_resumed_reply_is_penalised_by_the_whole_prompt(keeping: Server, fresh: Server) -> None:
    """The ids of restored rows come with the begin; without them the resumed reply differs."""
    first = words(77, 300)
    longer = first + words(78, 9)
    penalties = {"repetition_penalty": 1.6, "presence_penalty": 0.5, "frequency_penalty": 0.25}
    asked: dict[str, Any] = {**GREEDY, **penalties, "logprobs": 4}
    keeping.complete(first, **GREEDY)
    resumed, whole = keeping.complete(longer, **asked), fresh.complete(longer, **asked)
    assert cached(resumed) > 0
    assert resumed["choices"][0]["logprobs"] == whole["choices"][0]["logprobs"]
    assert ids(resumed) == ids(whole) != ids(fresh.complete(longer, **GREEDY))
    sampled = asked | {"temperature": 0.9, "seed": 5}
    assert ids(keeping.complete(longer, **sampled)) == ids(fresh.complete(longer, **sampled))
