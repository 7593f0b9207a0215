"""How a body's tokens are drawn: the sampling fields of a request, checked against the model.

Owns what an omitted field means and which ids a field may name. Ranges are the shapes' matter
(`edge/schemas.py`); knows no prompts. Everything that a client did wrong is raised here by the
field's name.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence

from streamglm.edge.fields import clip
from streamglm.edge.schemas import ChatBody, CompletionBody
from streamglm.edge.served import ServedModel
from streamglm.errors import InvalidRequest
from streamglm.request import SamplingParams
from streamglm.step import Guide, pack

SEED_BITS = 53
"""Of a random seed: what every JSON reader keeps exactly."""

_ID = re.compile(r"0|[1-9][0-9]{0,9}")


BANNED = -1e9
"""Added to the logit of a token that is never to be drawn."""


def sampling_of(
    body: ChatBody | CompletionBody,
    model: ServedModel,
    guide: Guide | None = None,
    banned: Sequence[int] = (),
) -> SamplingParams:
    """The body's own fields, then the checkpoint's, then what changes nothing. Raises
    `InvalidRequest`."""
    own = model.defaults
    repetition = body.repetition_penalty
    return SamplingParams(
        temperature=own.temperature if body.temperature is None else body.temperature,
        top_k=own.top_k if body.top_k is None else max(body.top_k, 0),
        top_p=own.top_p if body.top_p is None else body.top_p,
        min_p=own.min_p if body.min_p is None else body.min_p,
        seed=secrets.randbits(SEED_BITS) if body.seed is None else body.seed,
        repetition_penalty=own.repetition_penalty if repetition is None else repetition,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        bias=_bias(body.logit_bias or {}, model, banned),
        allowed=b"" if body.allowed_token_ids is None else _allowed(body.allowed_token_ids, model),
        logprobs=body.alternatives,
        guide=guide,
    )


def check_ids(ids: Sequence[int], model: ServedModel, param: str) -> None:
    """Raises `InvalidRequest` when an id is not one of the model's."""
    if ids and not (0 <= min(ids) and max(ids) < model.vocab_size):
        raise InvalidRequest(
            f"`{param}` holds a token id outside 0 to {model.vocab_size - 1}.", param=param
        )


def _bias(
    given: Mapping[str, float], model: ServedModel, banned: Sequence[int]
) -> tuple[tuple[int, float], ...]:
    for key in given:
        if not _ID.fullmatch(key) or int(key) >= model.vocab_size:
            raise InvalidRequest(
                f"`logit_bias` has the key `{clip(key)}`; a key is a token id, a whole number from "
                f"0 to {model.vocab_size - 1}.",
                param="logit_bias",
            )
    wished = {int(key): value for key, value in given.items() if value}
    return tuple(sorted((wished | dict.fromkeys(banned, BANNED)).items()))


def _allowed(ids: Sequence[int], model: ServedModel) -> bytes:
    check_ids(ids, model, "allowed_token_ids")
    if model.tokenizer is not None and min(ids) >= model.tokenizer.size:
        raise InvalidRequest(
            "`allowed_token_ids` holds no id that has a text; add one below "
            f"{model.tokenizer.size}.",
            param="allowed_token_ids",
        )
    return pack(ids)
