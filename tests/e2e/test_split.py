"""The latent split through HTTP: the replies of ranks that all hold every row, and of one rank.

Within a number of ranks the split changes no bit (tests/model/test_split.py), and greedy tokens are
those of one rank (test_ranks.py); so one server beside the built-in model's is enough to see that
the parts meet: plan, book, steps, exchange. Drafts are on, pages poisoned.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.server import Server, serving
from support.talk import cached, greedy, ids, stream, words

LENGTHS = (65, 133, 300, 410)
DRAWN = {"temperature": 0.9, "top_p": 0.95, "seed": 5, "ignore_eos": True, "max_tokens": 12}
FLAGS = ("--threads", "1", "--parallel", "4", "--drafts", "3", "--kv-poison", "--kv-split")


@pytest.fixture(scope="module")
def split() -> Iterator[Server]:
    with serving("nano", "--ranks", "3", "--context", "4096", *FLAGS) as server:
        yield server


def requests() -> list[dict[str, Any]]:
    """One a length, the second and the fourth sampled."""
    return [
        {"prompt": words(length, length), **(DRAWN if place % 2 else greedy(12))}
        for place, length in enumerate(LENGTHS)
    ]


def shas(server: Server, salt: str, together: int) -> list[str]:
    """Token hashes, at most `together` at a time; nothing resumes of another salt's."""
    with ThreadPoolExecutor(together) as pool:
        asked = [{**one, "cache_salt": salt} for one in requests()]
        replies = list(pool.map(lambda fields: server.complete(**fields), asked))
    return [reply["streamglm"]["token_sha"] for reply in replies]


def same_as_one_rank(server: Server, nano: Server) -> None:
    """Alone, together and, where greedy, of one rank."""
    alone = shas(server, "alone", 1)
    assert shas(server, "together", 4) == alone
    for place, one in enumerate(requests()):
        if not one["temperature"]:
            assert nano.complete(**one)["streamglm"]["token_sha"] == alone[place]
    server.wait_idle()


def test_replies_alone_and_together_and_of_one_rank(split: Server, nano: Server) -> None:
    same_as_one_rank(split, nano)


def test_a_prompt_on_many_pages_resumes_as_it_was(split: Server, nano: Server) -> None:
    """33 pages: its chunks fetch as far as the room goes, and are exchanged behind it."""
    prompt = words(2090, 2090)
    first, again = (split.complete(prompt, **greedy(8)) for _ in range(2))
    assert (cached(first), cached(again)) == (0, 2048)
    assert ids(again) == ids(first) == ids(nano.complete(prompt, **greedy(8)))
    with split.client() as client:
        text = client.get("/metrics").text
    for what in ("add", "join", "exchange", "fetch"):
        assert f'streamglm_rank_sent_bytes_total{{what="{what}"}} 0.0' not in text


def test_a_prompt_is_carried_from_a_full_home_and_comes_back_from_the_disk(
    nano: Server, tmp_path: Path
) -> None:
    """On two ranks, with two classes of 15 pages. The prompt is kept in class 0, a long stream
    takes most of that class, and class 1 has room for the prompt's next turn. On the disk the
    first pages have their rows in rank 0's records, and the others in rank 1's."""
    small = ("--context", "1024", "--pool-tokens", str(32 * 64))
    flags = ("--ranks", "2", *small, *FLAGS, "--learn-conversations", str(tmp_path))
    prompt = words(1, 260)
    longer = prompt + words(4, 240)
    want = ids(nano.complete(longer, **greedy(12)))
    with serving("nano", *flags) as server:
        server.complete(prompt, **greedy(4))
        with stream(server, words(2, 800), learn=False, **greedy(90)) as other:
            next(other)  # class 1
            with stream(server, words(3, 100), learn=False, **greedy(460)) as tokens:
                next(tokens)  # class 0
                for _ in other:
                    pass
                reply = server.complete(longer, **greedy(12))
        assert cached(reply) == 256
        assert server.metric("streamglm_prompt_carries_total") == 1
        assert ids(reply) == want
        same_as_one_rank(server, nano)
    with serving("nano", *flags) as server:
        reply = server.complete(longer, learn=False, **greedy(12))
        assert cached(reply) == 448
        assert ids(reply) == want
        with server.client() as client:
            text = client.get("/metrics").text
        assert 'streamglm_rank_sent_bytes_total{what="carry"} 0.0' not in text
