"""Every refusal and failure by name, each with its HTTP status and a remedy.

Owns names, statuses and the shape of a message: what is wrong, the numbers, what to do. Knows
nothing of HTTP beyond the status and OpenAI's four error fields. `docs/errors.md` is
generated from the classes here.
"""

from __future__ import annotations

from typing import ClassVar


class StreamglmError(Exception):
    """A named failure. `message` is one line for a person; it holds no path and no key."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: ClassVar[str | None] = None
    remedy: ClassVar[str] = "Look at the server's log; report it with the log's last lines."

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class RequestError(StreamglmError):
    """A request that cannot be served as it is: the client has to change it."""

    status = 400
    type = "invalid_request_error"
    remedy = "Change the field that the error names."


class InvalidRequest(RequestError):
    """A field has a wrong type, a wrong value, or is not served."""

    code = "invalid_value"


class InvalidJSON(RequestError):
    """The body is not JSON, or not an object."""

    code = "invalid_json"
    remedy = "Send one JSON object in UTF-8."


class ContextLengthExceeded(RequestError):
    """Prompt and reply do not fit the window. The message holds both numbers."""

    code = "context_length_exceeded"
    remedy = "Shorten the prompt, lower `max_tokens`, or serve with a larger `--context`."

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        prompt: int = 0,
        limit: int | None = None,
        context: int = 0,
    ) -> None:
        """Tokens: the prompt's, those that are asked for, and those of a window."""
        super().__init__(message, param=param)
        self.prompt = prompt
        self.limit = limit
        self.context = context


class PoolTooSmall(RequestError):
    """Prompt and reply fit the window but not the page pool, whatever else runs."""

    code = "pool_too_small"
    remedy = "Lower `max_tokens`, or start the server with a larger `--pool-tokens`."


class Unauthorized(RequestError):
    """No key, or a wrong one."""

    status = 401
    code = "invalid_api_key"
    remedy = "Send `Authorization: Bearer KEY` or `x-api-key: KEY`."


class NotFound(RequestError):
    """No such route or model."""

    status = 404
    code = "not_found"
    remedy = "`GET /v1/models` lists the model; docs/http.md lists the routes."


class ModelNotFound(NotFound):
    """The request names a model that this server does not serve."""

    code = "model_not_found"
    remedy = "Name the served model, or leave `model` out."


class ConversationNotFound(NotFound):
    """No such conversation is learned, or none at all."""

    code = "conversation_not_found"
    remedy = "`GET /v1/conversations` lists them; `--learn-conversations` turns learning on."


class MethodNotAllowed(RequestError):
    """The route exists, but not with this method."""

    status = 405
    code = "method_not_allowed"
    remedy = "docs/http.md lists the routes with their methods."


class BodyTooLarge(RequestError):
    """The body passes the limit of `--max-body-mib`."""

    status = 413
    code = "body_too_large"
    remedy = "Send less, or start the server with a larger `--max-body-mib`."


class UnsupportedMediaType(RequestError):
    """The body is declared as something other than JSON."""

    status = 415
    code = "unsupported_media_type"
    remedy = "Send `Content-Type: application/json`."


class Overloaded(StreamglmError):
    """As many requests wait as `--max-queue` allows."""

    status = 503
    type = "overloaded_error"
    code = "overloaded"
    remedy = "Try again after the seconds in `Retry-After`, or raise `--max-queue`."


class ShuttingDown(StreamglmError):
    """The server takes no more requests, or ran out of patience for this one."""

    status = 503
    type = "overloaded_error"
    code = "shutting_down"
    remedy = "Send the request again when the server is back."


class InternalError(StreamglmError):
    """Something that nobody foresaw; the server's log has it, the client learns nothing more."""

    code = "internal_error"


class ReplyFailed(StreamglmError):
    """The model gave no usable token for this reply; other replies go on."""

    code = "reply_failed"


class CompilerFailed(StreamglmError):
    """The grammar compiler does not start; replies without a form are served."""

    code = "compiler_failed"
    remedy = "Look at the server's log: the compiling process has written there why."


class EngineFailed(StreamglmError):
    """The ranks failed; replies that were running are lost."""

    code = "engine_failed"


class RanksDiffer(EngineFailed):
    """Ranks that must agree do not: a setting, a fingerprint, or the tokens of a step."""

    code = "ranks_differ"


class KvSplitRoom(EngineFailed):
    """Rows for their owner pass the room of an exchange; every rank says so before it sends any."""

    code = "kv_split_room"
    remedy = "Report it with the log's last lines, and start without `--kv-split` meanwhile."


class PeerLost(EngineFailed):
    """A rank waited for another in the middle of a step, and it is gone or does not answer."""

    code = "peer_lost"
    remedy = (
        "Look at the server's log for the rank that ended first, and at the link between hosts."
    )


class StartError(StreamglmError):
    """The server cannot start. Its one line names the setting or the file."""

    code = "start"
    remedy = "Change the setting or the file that the line names."


class SettingError(StartError):
    """A setting has a value that cannot be served."""

    code = "setting"


class FolderInUse(SettingError):
    """Another server writes to the folder of learned conversations. The message has its pid."""

    code = "folder_in_use"
    remedy = "End that server, or name another folder with `--learn-conversations`."


class FolderForeign(SettingError):
    """The folder of learned conversations holds files of something else, which could be lost."""

    code = "folder_foreign"
    remedy = "Name an empty folder, or one that a server has learned into."


class CheckpointError(StartError):
    """The checkpoint cannot be served: a missing or cut file, a missing or misshapen tensor, a
    tokenizer that does not fit."""

    code = "checkpoint"
    remedy = "Fetch the file again, or point the server at a whole checkpoint."


class DiskError(StreamglmError):
    """A record or the folder of records cannot be used. It stays in the log: a prompt that cannot
    be read is computed."""


class RecordDamaged(DiskError):
    """A record is not what was written."""


class WireError(StreamglmError):
    """A frame between server and rank is cut, too large, out of order, or of another version."""

    code = "wire"


class FrameCut(WireError):
    """The stream ended inside a frame."""

    code = "frame_cut"


class FrameTooLarge(WireError):
    """A frame's length passes the limit of the wire."""

    code = "frame_too_large"


class FrameVersion(WireError):
    """A frame of another version of the wire: server and rank are not of one release."""

    code = "frame_version"
    remedy = "Run the same version of streamglm on every host."


class FrameOrder(WireError):
    """A frame's sequence number is not the next one."""

    code = "frame_order"


class FrameMalformed(WireError):
    """A frame's body is not a message of this side of the wire."""

    code = "frame_malformed"


class StreamEnded(WireError):
    """The other process closed its end of the stream."""

    code = "stream_ended"


class StepRefused(WireError):
    """A rank refused a step before any state changed: it does not fit what the rank knows."""

    code = "step_refused"


class BadStep(StepRefused):
    """A lane, a page, a position or a kept state of a step is not as the rank knows it."""

    code = "bad_step"


class ResidueMismatch(StepRefused):
    """A page of a step is of another class than the rank that owns the lane."""

    code = "residue_mismatch"
