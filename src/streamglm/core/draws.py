"""A request's sampling as a step holds it, and what of it no step may carry.

Owns the way from `SamplingParams` to `Draw`. Knows no lanes and no logits.
"""

from __future__ import annotations

from streamglm.request import Request, SamplingParams
from streamglm.step import Draw, pack


def draw_of(sampling: SamplingParams) -> Draw:
    """The sampling of a request, as a step holds it."""
    return Draw(
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        seed=sampling.seed,
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        bias=sampling.bias,
        allowed=sampling.allowed,
        logprobs=sampling.logprobs,
        guide=sampling.guide,
    )


def seen_of(request: Request) -> bytes:
    """The history of a begin: the prompt's ids where a repetition penalty looks at them. A resumed
    lane is penalised by the part that it does not compute as well."""
    return pack(request.prompt) if request.sampling.repetition_penalty != 1.0 else b""
