"""How a request's reply is guided: its budget of reasoning and its grammar, as a step carries them.

Owns what cannot go together with a constraint. Knows no grammar.
"""

from __future__ import annotations

from streamglm.edge.schemas import ChatBody, CompletionBody
from streamglm.edge.served import ServedModel
from streamglm.edge.structured import compiled
from streamglm.errors import InvalidRequest
from streamglm.step import Guide
from streamglm.text.constraint import Constraint
from streamglm.text.markup import CLOSE


async def guide_of(
    held: tuple[Constraint, str] | None,
    thinking: bool,
    budget: int | None,
    body: ChatBody | CompletionBody,
    model: ServedModel,
) -> Guide | None:
    """None where the reply is free. `thinking`: the prompt ends inside an open think block. Raises
    `InvalidRequest`."""
    budget = budget if thinking else None
    if held is None and budget is None:
        return None
    grammar = b""
    if held is not None:
        constraint, param = held
        _check(param, body, model)
        grammar = await compiled(constraint, param, model.grammars)
    close = () if model.tokenizer is None else tuple(model.tokenizer.encode(CLOSE))
    return Guide(thinking, budget, close, tuple(sorted(model.eos_ids)), grammar)


def _check(param: str, body: ChatBody | CompletionBody, model: ServedModel) -> None:
    if model.tokenizer is None or not model.eos_ids:
        raise InvalidRequest(
            f"`{param}` needs a tokenizer and an end token, which this checkpoint does not have.",
            param=param,
        )
    for name, given in (
        ("ignore_eos", body.ignore_eos),
        ("allowed_token_ids", body.allowed_token_ids),
    ):
        if given:
            raise InvalidRequest(
                f"`{name}` cannot go together with `{param}`, which says itself what is drawn and "
                "where it ends.",
                param=name,
            )
