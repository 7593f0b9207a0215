"""Log-probabilities as clients read them: OpenAI's two shapes.

Owns how a token is spelled in them, and the place of a token in a reply's text. Knows no frames and
no events. Invariant: entries joined over the chunks of a stream are those of the whole reply,
however the ids were cut into rounds; each id has one entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from streamglm.step import LogProbs
from streamglm.text.detokenize import Detokenizer
from streamglm.text.tokenizer import Tokenizer

LEAST = -9999.0
"""OpenAI's value for a token that is very unlikely. JSON has no infinity."""


class Named(NamedTuple):
    """Ids that a chunk or a body names, and what is told of each where it was asked."""

    ids: Sequence[int]
    logprobs: Sequence[LogProbs]


class Shapes(Protocol):
    """The `logprobs` of a choice. One object a reply, fed in order."""

    def shape(self, named: Named) -> dict[str, Any]:
        """The object for these tokens."""
        ...


class ChatLogprobs:
    """`choices[].logprobs` of a chat: `content` has one entry a token."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer

    def shape(self, named: Named) -> dict[str, Any]:
        entries = zip(*named, strict=True)
        return {"content": [self._entry(i, told) for i, told in entries], "refusal": None}

    def _entry(self, token: int, told: LogProbs) -> dict[str, Any]:
        top = [self._one(i, logprob) for i, logprob in told.top]
        return {**self._one(token, told.logprob), "top_logprobs": top}

    def _one(self, token: int, logprob: float) -> dict[str, Any]:
        said = self._tokenizer.said(token) if self._tokenizer else b""
        return {
            "token": _whole(self._tokenizer, token).decode("utf-8", "replace"),
            "logprob": _finite(logprob),
            "bytes": list(said),
        }


class TextLogprobs:
    """`choices[].logprobs` of a completion: four lists, one item a token. `stop_ids` are silent."""

    def __init__(self, tokenizer: Tokenizer | None, stop_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._stop_ids = stop_ids
        self._text = Detokenizer(tokenizer) if tokenizer else None
        self._offset = 0  # characters that are whole so far

    def shape(self, named: Named) -> dict[str, Any]:
        return {
            "text_offset": [self._place(token) for token in named.ids],
            "token_logprobs": [_finite(told.logprob) for told in named.logprobs],
            "tokens": [self._spelled(token) for token in named.ids],
            "top_logprobs": [self._top(*one) for one in zip(*named, strict=True)],
        }

    def _place(self, token: int) -> int:
        """The character of the reply's text that `token` begins, or goes on with."""
        at = self._offset
        if self._text is not None and token not in self._stop_ids:
            self._offset += len(self._text.feed(token))
        return at

    def _top(self, token: int, told: LogProbs) -> dict[str, float]:
        """The alternatives, and the token itself behind them where it is none of them."""
        top: dict[str, float] = {}
        for i, logprob in (*told.top, (token, told.logprob)):
            top.setdefault(self._spelled(i), _finite(logprob))
        return top

    def _spelled(self, token: int) -> str:
        """A token as a key: `bytes:` and its bytes where they are no whole characters."""
        spelled = _whole(self._tokenizer, token)
        try:
            return spelled.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)


def _whole(tokenizer: Tokenizer | None, token: int) -> bytes:
    """The bytes of a token, special ones spelled out; its number where it has no text."""
    spelled = tokenizer.piece(token) if tokenizer else b""
    return spelled or b"token_id:%d" % token


def _finite(logprob: float) -> float:
    return logprob if logprob >= LEAST else LEAST  # also of NaN
