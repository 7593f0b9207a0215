"""A reply is a function of its request alone: alone, beside others, in any order, by token hash."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.server import Server, serving


def prompt(seed: int, length: int) -> list[int]:
    """Token ids without specials."""
    draw = random.Random(seed)
    return [draw.randrange(300) for _ in range(length)]


# lengths below, at and above a block of 64, a page, a chunk of 256 and the dense limit of 131
LENGTHS = (1, 63, 64, 65, 128, 131, 132, 133, 134, 255, 256, 257, 513, 700)


def shas(server: Server, requests: list[dict[str, Any]], together: int) -> list[str]:
    """The token hashes of the requests, at most `together` at a time, in the given order."""
    with ThreadPoolExecutor(together) as pool:
        replies = list(pool.map(lambda fields: server.complete(**fields), requests))
    return [reply["streamglm"]["token_sha"] for reply in replies]


def requests_of(seed: int) -> list[dict[str, Any]]:
    """One request a length, every other one sampled."""
    return [
        {
            "prompt": prompt(seed + length, length),
            "max_tokens": 24,
            "ignore_eos": True,
            "temperature": 0.9 if index % 2 else 0,
            "top_p": 0.95,
            "seed": 7 + index,
        }
        for index, length in enumerate(LENGTHS)
    ]


@pytest.fixture(scope="module")
def solo(nano: Server) -> list[str]:
    """Every request alone on the server."""
    return shas(nano, requests_of(0), together=1)


def test_replies_beside_seven_neighbours_equal_replies_alone(nano: Server, solo: list[str]) -> None:
    assert shas(nano, requests_of(0), together=8) == solo
    nano.wait_idle()


def test_replies_do_not_depend_on_the_order_of_arrival(nano: Server, solo: list[str]) -> None:
    order = list(range(len(LENGTHS)))
    random.Random(3).shuffle(order)
    requests = requests_of(0)
    mixed = shas(nano, [requests[i] for i in order], together=5)
    assert [mixed[order.index(i)] for i in range(len(order))] == solo


def test_different_seeds_and_prompts_give_different_replies(solo: list[str]) -> None:
    """Without this, a server that answered everything alike would pass the tests above."""
    assert len(set(solo)) == len(solo)


@pytest.fixture(scope="module")
def other() -> Iterator[Server]:
    """A second server with other lanes, another pool and shuffled history."""
    with serving("nano", "--parallel", "3", "--pool-tokens", "8192", "--kv-poison") as server:
        yield server


def test_another_server_with_other_lanes_and_pool_gives_the_same_replies(
    other: Server, solo: list[str]
) -> None:
    other.complete(prompt(99, 500), max_tokens=3)  # so that page ids differ from the first server
    assert shas(other, requests_of(0), together=3) == solo


def test_a_seed_that_was_reported_replays_the_reply(nano: Server) -> None:
    first = nano.complete(prompt(5, 50), max_tokens=20, temperature=1.0, ignore_eos=True)
    again = nano.complete(
        prompt(5, 50),
        max_tokens=20,
        temperature=1.0,
        ignore_eos=True,
        seed=first["streamglm"]["seed"],
    )
    other_seed = nano.complete(prompt(5, 50), max_tokens=20, temperature=1.0, ignore_eos=True)
    assert again["choices"][0]["token_ids"] == first["choices"][0]["token_ids"]
    assert other_seed["streamglm"]["seed"] != first["streamglm"]["seed"]
    assert other_seed["choices"][0]["token_ids"] != first["choices"][0]["token_ids"]
