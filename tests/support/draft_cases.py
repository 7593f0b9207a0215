"""Requests whose replies must not depend on drafts, and the comparison of two answers to one.

Owns the mixture: cold and resumed prompts on both sides of pages, chunks and the dense limit;
greedy, sampled and penalised; words in few ids, so that copies come true, and in all; stops at
every place of a reply; limits from 1 to 64; with and without log-probabilities. Owns no server.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from support.server import Server

Body = dict[str, Any]
LENGTHS = (1, 3, 40, 63, 64, 65, 100, 127, 128, 129, 131, 132, 190, 255, 256, 257, 400, 600)
TEMPERATURES = (0.0, 0.0, 0.3, 0.8, 1.3)
TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True)
class Case:
    """A request, and how many others are in flight beside it."""

    body: Body
    stop_at: int | None
    """A stop string is taken from the reply's own text at this token."""


def cases(seed: int, count: int) -> list[Case]:
    """The same for a seed."""
    draw = random.Random(seed)
    prompts: list[list[int]] = []
    found = []
    for _ in range(count):
        prompt = _prompt(draw, prompts)
        prompts.append(prompt)
        body: Body = {
            "prompt": prompt,
            "max_tokens": draw.choice((1, 2, 3, 7, 8, 9, 64, draw.randrange(1, 65))),
            "temperature": draw.choice(TEMPERATURES),
            "seed": draw.randrange(1 << 30),
            "ignore_eos": draw.random() < 0.7,
        } | _sampling(draw)
        stop = draw.randrange(1, 9) if draw.random() < 0.4 else None
        found.append(Case(body, stop))
    return found


def _prompt(draw: random.Random, prompts: Sequence[list[int]]) -> list[int]:
    """New, or one that goes on behind another, or the same again; often with repeats in it."""
    if prompts and draw.random() < 0.4:
        return draw.choice(prompts)[:500] + [draw.randrange(300) for _ in range(draw.randrange(40))]
    length = draw.choice(LENGTHS)
    if draw.random() < 0.5:
        period = [draw.randrange(300) for _ in range(draw.randrange(4, 30))]
        return (period * (length // len(period) + 1))[:length]
    return [draw.randrange(300) for _ in range(length)]


def _sampling(draw: random.Random) -> Body:
    more: Body = {}
    kind = draw.randrange(6)
    if kind == 0:
        more |= {"repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.3}
    elif kind in (1, 2):  # two ids alone: many copies come true
        ids = draw.sample(range(97, 123), 2)
        more["logit_bias"] = {str(token): 100 for token in ids}
    elif kind == 3:
        more |= {"top_k": 3, "min_p": 0.05}
    if draw.random() < 0.4:
        more["logprobs"] = 3
    return more


def ask(server: Server, body: Body, *, draft: bool) -> Body:
    return server.complete(**body, draft=draft)


def with_stop(case: Case, serial: Body) -> Body:
    """The case's request, with its stop string where the serial reply has text for one."""
    ids = serial["choices"][0]["token_ids"]
    text = serial["choices"][0]["text"]
    if case.stop_at is None or not text.strip():
        return case.body
    start = min(len(text) - 1, case.stop_at * len(text) // max(1, len(ids)))
    return case.body | {"stop": text[start : start + 3]}


def difference(one: Body, two: Body) -> str | None:
    """What of two answers is not equal, in a word."""
    a, b = one["choices"][0], two["choices"][0]
    for name in ("token_ids", "text", "finish_reason"):
        if a[name] != b[name]:
            return f"{name}: {a[name]} and {b[name]}"
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        if one["usage"][name] != two["usage"][name]:
            return f"usage: {one['usage']} and {two['usage']}"
    if one["streamglm"]["token_sha"] != two["streamglm"]["token_sha"]:
        return "token_sha"
    return _far(a.get("logprobs"), b.get("logprobs"))


def _far(one: Any, two: Any) -> str | None:
    if one is None or two is None:
        return None if one is two else "log-probabilities of one alone"
    for name in ("tokens", "text_offset"):
        if one[name] != two[name]:
            return f"logprobs.{name}"
    if not _near(one["token_logprobs"], two["token_logprobs"]):
        return "logprobs.token_logprobs"
    for mine, other in zip(one["top_logprobs"], two["top_logprobs"], strict=True):
        if list(mine) != list(other) or not _near(list(mine.values()), list(other.values())):
            return "logprobs.top_logprobs"
    return None


def _near(one: Sequence[float], two: Sequence[float]) -> bool:
    return len(one) == len(two) and all(
        math.isclose(a, b, rel_tol=0.0, abs_tol=TOLERANCE) for a, b in zip(one, two, strict=True)
    )


@dataclass(slots=True)
class Tally:
    """What a comparison has met, so that it can be shown to mean something."""

    drafted: int = 0
    accepted: int = 0
    stopped: int = 0
    cut: int = 0
    """Replies that their limit ended."""
    resumed: int = 0
    wrong: int = 0
    """Replies in which some draft was false."""


def compare(server: Server, seed: int, count: int) -> Tally:
    """Every case without drafts, then with them beside 0 to 7 others: AssertionError for the first
    that differs."""
    found = cases(seed, count)
    tally = Tally()
    serial = []
    for case in found:
        plain = ask(server, case.body, draft=False)
        body = with_stop(case, plain)
        serial.append((body, plain if body is case.body else ask(server, body, draft=False)))
    draw, at = random.Random(seed), 0
    while at < count:
        together = draw.randrange(1, 9)
        batch = serial[at : at + together]
        with ThreadPoolExecutor(together) as pool:
            answers = pool.map(lambda one: ask(server, one[0], draft=True), batch)
            for (body, plain), drafted in zip(batch, answers, strict=True):
                unequal = difference(plain, drafted)
                assert unequal is None, f"{unequal}\nof {body}"
                _count(tally, plain, drafted)
        at += together
    return tally


def _count(tally: Tally, plain: Body, drafted: Body) -> None:
    figures = drafted["streamglm"]
    assert plain["streamglm"]["drafted"] == plain["streamglm"]["accepted"] == 0
    assert plain["streamglm"]["rounds"] == plain["usage"]["completion_tokens"] - 1 or (
        plain["choices"][0]["finish_reason"] == "stop"
    )
    tally.drafted += figures["drafted"]
    tally.accepted += figures["accepted"]
    tally.wrong += figures["accepted"] < figures["drafted"]
    tally.stopped += drafted["choices"][0]["finish_reason"] == "stop"
    tally.cut += drafted["choices"][0]["finish_reason"] == "length"
    tally.resumed += drafted["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
