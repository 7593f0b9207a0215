"""A reply as it is told: the engine's events in, pieces of text out, and the sum of it all.

Owns one reply's ids, text, end and figures. Knows no frames and no sockets; `edge/sse.py` and
`edge/whole.py` both read it, which is why a streamed reply and a whole one cannot differ.
Invariant: `ids` are the reply's ids up to and including the one that ended it, whatever more the
engine had drawn by then.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any

from streamglm.clock import Clock
from streamglm.core.engine import Reply
from streamglm.edge.logprobs import Named
from streamglm.edge.meters import Meters
from streamglm.edge.prepare import Ask
from streamglm.edge.served import ServedModel
from streamglm.errors import EngineFailed, StreamglmError
from streamglm.request import Event, Failed, Finished, FinishReason, Started, Tokens
from streamglm.step import LogProbs
from streamglm.text.assemble import Assembler
from streamglm.text.markup import Piece


class Telling:
    """The state of one reply. `arrived` is when its request came, on the server's clock."""

    def __init__(
        self,
        ask: Ask,
        reply: Reply,
        model: ServedModel,
        meters: Meters,
        clock: Clock,
        arrived: float,
    ) -> None:
        self.ask = ask
        self.reply = reply
        self.ids: list[int] = []
        self.logprobs: list[LogProbs] = []
        """One for each id, where the request asks for them."""
        self.cached_tokens = 0
        self.finish: FinishReason | None = None
        """Set once the reply is complete."""
        self.error: StreamglmError | None = None
        """Set once the reply has failed."""
        self._text = _assembler(ask, model)
        self._meters = meters
        self._now = clock.now
        self._arrived = arrived
        self._last: float | None = None  # when the latest tokens came
        self._left = False

    @property
    def done(self) -> bool:
        """Complete or failed: no event changes it any more."""
        return self.finish is not None or self.error is not None

    @property
    def reason(self) -> str | None:
        """Why the reply is complete, as clients are told: one that ended by itself after calls
        ended for their sake."""
        if self.finish is FinishReason.STOP and self._text is not None and self._text.calls:
            return "tool_calls"
        return self.finish and self.finish.value

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended the reply, if one did."""
        return self._text.stop_string if self._text else None

    @property
    def reasoning_tokens(self) -> int:
        """Ids of the reply that belong to its reasoning."""
        return self._text.reasoning_tokens if self._text else 0

    def take(self, event: Event) -> list[Piece]:
        """The text that `event` settles."""
        if isinstance(event, Tokens):  # before all others, without a pattern: there is one a round
            return self._tokens(event.ids, event.logprobs)
        match event:
            case Started(cached):
                self.cached_tokens = cached
                self._meters.queue.observe(self._now() - self._arrived)
                return []
            case Finished(reason):
                return self._finished(reason)
            case Failed(error):
                self.fail(error)
                return []

    def fail(self, error: StreamglmError) -> None:
        """The reply ends here, with `error`; unless it has already ended."""
        if not self.done:
            self.error = error
            self._meters.ended("failed")

    def leave(self) -> None:
        """Nobody reads on, or all is told: the engine need not go on. Safe to call twice."""
        self.reply.stop()
        if not self.done and not self._left:
            self._meters.ended("cancelled")
        self._left = True

    def usage(self) -> dict[str, Any]:
        """OpenAI's `usage`."""
        prompt, completion = len(self.ask.request.prompt), len(self.ids)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
        }

    def figures(self) -> dict[str, Any]:
        """The `streamglm` object. Seconds; `token_sha` is the SHA-256 of the ids as little-endian
        32-bit numbers."""
        timing = self.reply.timing()
        packed = struct.pack(f"<{len(self.ids)}I", *self.ids)
        return {
            "token_sha": hashlib.sha256(packed).hexdigest(),
            "seed": self.ask.request.sampling.seed,
            "drafted": timing.drafted,
            "accepted": timing.accepted,
            "rounds": timing.rounds,
            "queue_seconds": timing.queue_seconds,
            "prefill_seconds": timing.prefill_seconds,
            "decode_seconds": timing.decode_seconds,
        }

    def named(self, start: int = 0) -> Named | None:
        """The tokens from number `start` on, where the request wants them named."""
        if not self.ask.names_tokens:
            return None
        return Named(self.ids[start:], self.logprobs[start:])

    def _tokens(self, ids: tuple[int, ...], logprobs: tuple[LogProbs, ...]) -> list[Piece]:
        self._measure()
        if self._text is None:
            self.ids += ids
            self.logprobs += logprobs
            return []
        pieces, used = self._text.feed(ids)
        self.ids += ids[:used]
        self.logprobs += logprobs[:used]
        if self._text.stopped:
            self.reply.stop()
            self._complete(FinishReason.STOP)
        return pieces

    def _finished(self, reason: FinishReason) -> list[Piece]:
        if reason is FinishReason.CANCELLED:
            self.fail(EngineFailed("The server stopped this reply."))
            return []
        ended = reason is FinishReason.STOP
        pieces = self._text.finish(ended=ended) if self._text else []
        stopped = self._text is not None and self._text.stopped
        self._complete(FinishReason.STOP if stopped else reason)
        return pieces

    def _measure(self) -> None:
        now = self._now()
        if self._last is None:
            self._meters.first_token.observe(now - self._arrived)
        else:
            self._meters.gap.observe(now - self._last)
        self._last = now

    def _complete(self, reason: FinishReason) -> None:
        self.finish = reason
        self._meters.request.observe(self._now() - self._arrived)
        self._meters.ended(reason.value)


def _assembler(ask: Ask, model: ServedModel) -> Assembler | None:
    if model.tokenizer is None:
        return None
    return Assembler(
        model.tokenizer,
        thinking=ask.thinking,
        stops=ask.stops,
        stop_ids=ask.request.stop_ids,
        tools=() if ask.tool_choice.mode == "none" else ask.tools,
        single=ask.single_call,
    )
