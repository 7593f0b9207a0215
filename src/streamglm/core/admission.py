"""Admission: what a request needs, why it waits, and what is refused by name.

Owns the arithmetic of a lease. Pure: numbers in, a verdict out; holds no queue (`waiting.py`), no
book. A request takes every page that it can ever need before its first row, so that nothing that
runs can fail for pages; whoever cannot have them waits, and whoever could never have them, with
every kept state evicted, is told at once.
"""

from __future__ import annotations

from enum import StrEnum

from streamglm.core.draws import draw_of
from streamglm.core.shape import EngineShape
from streamglm.errors import ContextLengthExceeded, InvalidRequest, PoolTooSmall
from streamglm.pool.layout import lease_pages
from streamglm.request import Request
from streamglm.step import fault_of


class Wait(StrEnum):
    """Why a request waits. Whoever waits for lanes or pages holds up everyone behind; whoever
    waits for a prefix holds up nobody."""

    LANES = "lanes"
    PAGES = "pages"
    PREFIX = "prefix"


def need_pages(shape: EngineShape, request: Request) -> int:
    """Pages of the request's lease: prompt, whole reply and slack, clipped to the window; a whole
    window where lanes have windows."""
    if not shape.paged:
        return shape.window_pages
    prompt, page_rows = len(request.prompt), shape.page_rows
    return lease_pages(prompt, request.max_tokens, shape.context, page_rows, shape.slack)


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
    if fault := fault_of(draw_of(request.sampling), shape.vocab_size):
        raise InvalidRequest(f"the sampling cannot be used: {fault}")


def _refuse_pool(shape: EngineShape, request: Request) -> None:
    need = need_pages(shape, request)
    if need <= shape.most_pages:
        return
    prompt, room = len(request.prompt), shape.most_tokens
    most = room - prompt - shape.slack
    remedy = (
        f"lower max_tokens to {most} or less, or start the server"
        if most > 0
        else "start the server"
    )
    split = shape.classes > 1
    where = f"each of {shape.classes} classes of pages" if split else "the pool"
    enough = shape.classes * (need + split) * shape.page_rows
    raise PoolTooSmall(
        f"the prompt has {prompt} tokens and max_tokens is {request.max_tokens}: {need} pages of "
        f"{shape.page_rows} tokens, but {where} holds {shape.most_pages} pages, {room} tokens, "
        f"when no prompt is kept; "
        f"{remedy} with --pool-tokens {enough} or more",
        param="max_tokens",
    )
