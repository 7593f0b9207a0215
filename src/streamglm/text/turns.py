"""Where a user's turn begins, in token ids: found out by rendering one.

Owns the one question. Knows no prompts: whoever keeps prompts looks for these ids in them. A
template that writes plain words before a user's text has no such id, and nothing is found.
"""

from __future__ import annotations

from streamglm.errors import InvalidRequest
from streamglm.text.template import ChatTemplate
from streamglm.text.tokenizer import Tokenizer

_TEXT = "streamglm"
"""A user's text that no template writes by itself."""


def turn_ids(tokenizer: Tokenizer | None, template: ChatTemplate | None) -> frozenset[int]:
    """The special token that `template` writes before a user's text, if there is one."""
    if tokenizer is None or template is None:
        return frozenset()
    try:
        rendered = template.render([{"role": "user", "content": _TEXT}])
    except InvalidRequest:
        return frozenset()
    before, found, _ = rendered.text.rpartition(_TEXT)
    special = [token for token in tokenizer.encode(before) if token in tokenizer.special_ids]
    return frozenset(special[-1:]) if found else frozenset()
