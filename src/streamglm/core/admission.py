"""Admission: a request starts now, waits for a reason, or is refused by name.

Owns the arithmetic of a lease and the order of the queue. Pure: numbers in, a verdict out; holds
no queue, no book. A request takes every page that it can ever need before its first row, so that
nothing that runs can fail for pages; whoever cannot have them waits, first come first served, and
whoever could never have them is told at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from streamglm.core.shape import EngineShape
from streamglm.errors import ContextLengthExceeded, InvalidRequest, PoolTooSmall
from streamglm.pool.layout import lease_pages
from streamglm.request import Request


class Wait(StrEnum):
    """Why the head of the queue waits, and with it everyone behind."""

    LANES = "lanes"
    PAGES = "pages"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first `starts` of the queue start now; the next one, if any, waits for `reason`."""

    starts: int
    reason: Wait | None


def need_pages(shape: EngineShape, request: Request) -> int:
    """Pages of the request's lease: prompt and whole reply, clipped to the window."""
    return lease_pages(len(request.prompt), request.max_tokens, shape.context, shape.page_rows)


def admit(needs: Iterable[int], lanes: int, pages: int) -> Verdict:
    """How many of a queue start now, given free `lanes` and `pages`; `needs` in queue order.

    Nobody passes the head: a large request would wait for ever behind a stream of small ones.
    """
    starts = 0
    for need in needs:
        if lanes < 1:
            return Verdict(starts, Wait.LANES)
        if pages < need:
            return Verdict(starts, Wait.PAGES)
        lanes -= 1
        pages -= need
        starts += 1
    return Verdict(starts, None)


def refuse(shape: EngineShape, request: Request) -> None:
    """Raise for a request that can never run here; return for any other.

    `InvalidRequest` for a prompt or a length that is none, `ContextLengthExceeded` when prompt
    and reply pass the window, `PoolTooSmall` when they fit the window and not the pool. The
    messages hold need and room, in tokens. What no step can carry is refused here too, so that it
    cannot fail a round for everyone.
    """
    prompt = len(request.prompt)
    total = prompt + request.max_tokens
    if prompt < 1:
        raise InvalidRequest("the prompt holds no token", param="prompt")
    if request.max_tokens < 1:
        raise InvalidRequest(
            f"max_tokens is {request.max_tokens}; it must be at least 1", param="max_tokens"
        )
    if total > shape.context:
        raise ContextLengthExceeded(
            f"the prompt has {prompt} tokens and max_tokens is {request.max_tokens}: {total} "
            f"tokens, but the window holds {shape.context}",
            param="max_tokens",
        )
    _refuse_pool(shape, request)
    if not -(2**63) <= request.sampling.seed < 2**64:
        raise InvalidRequest("seed does not fit 64 bits", param="seed")
    lowest, highest = min(request.prompt), max(request.prompt)
    if lowest < 0 or highest >= shape.vocab_size:
        raise InvalidRequest(
            f"token id {lowest if lowest < 0 else highest} is not below the vocabulary's "
            f"{shape.vocab_size}",
            param="prompt",
        )


def _refuse_pool(shape: EngineShape, request: Request) -> None:
    need = need_pages(shape, request)
    if need <= shape.pages:
        return
    prompt, room = len(request.prompt), shape.pool_tokens
    remedy = (
        f"lower max_tokens to {room - prompt} or less, or start the server"
        if prompt < room
        else "start the server"
    )
    raise PoolTooSmall(
        f"the prompt has {prompt} tokens and max_tokens is {request.max_tokens}: {need} pages of "
        f"{shape.page_rows} tokens, but the pool holds {shape.pages} pages, {room} tokens; "
        f"{remedy} with --pool-tokens {need * shape.page_rows} or more",
        param="max_tokens",
    )
