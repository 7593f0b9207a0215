"""Every message between server and rank, and how a message becomes bytes.

Owns the messages, the frame and its checks. Pure: bytes in, messages out; knows no sockets, no
torch. A frame:

    bytes [0, 4)     length of the body, little-endian
    bytes [4, 6)     version of the wire
    bytes [6, 14)    sequence number, from 0, one stream and direction
    bytes [14, ...)  body: msgpack of [tag, field, ...]

Each side accepts only the messages that are sent to it. A frame is refused by name before its
body is looked at; nothing on the wire can name code.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from streamglm.errors import (
    FrameCut,
    FrameMalformed,
    FrameOrder,
    FrameTooLarge,
    FrameVersion,
)
from streamglm.step import Step, StepResult

VERSION = 8
LIMIT_BYTES = 16 << 20
"""Largest body: a prompt pass of a million tokens, or a begin of a million pages, is 5 MB."""

_HEADER = struct.Struct("<IHQ")


class SpecNumbers(msgspec.Struct, frozen=True):
    """What server and rank must both have read from the checkpoint's `config.json`."""

    page_rows: int
    chunk_rows: int
    kda_chunk: int
    window_rows: int
    vocab_size: int
    layers: int
    verify_rows: int = 1
    """Rows of one lane in a window at most; 1 without drafts."""


class RankSettings(msgspec.Struct, frozen=True):
    """Everything that a rank is told, once, before it loads."""

    model: str
    """The checkpoint's folder, or the name of a random model."""
    device: str
    threads: int
    pages: int
    lanes: int
    kv_poison: bool
    spelled_ids: int | None
    """Token ids below this have a text, and no other is drawn; None without a tokenizer."""
    spec: SpecNumbers
    slots: int = 0
    """Places for the fixed parts of kept states that share pages."""
    rows: str = "fp32"
    """How pages hold latent rows: a value of `RowFormat`."""
    drafts: bool = False
    """Windows may have several rows of a lane, and the next-token layer has a cache."""
    kv_split: bool = False
    """Latent rows of a page lie on its owner alone; `pages` counts a trash page a rank."""
    graphs: bool = True
    """On a GPU windows are replayed from graphs; without, launch by launch."""
    layers: int | None = None
    expert_format: str = "bf16"
    """Of a random model: its first so many layers, and how its experts are held."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """To a rank, first: who it is, its settings, and how it meets the others."""

    rank: int
    world: int
    settings: RankSettings
    meet: str = "127.0.0.1"
    """Where rank 0 waits for the others: its address, as they reach it."""
    own: str = "127.0.0.1"
    """This rank's own address on that network."""
    beat: float = 0.0
    """Seconds between two signs of life; 0 is none."""
    prove: bool = False
    """Say what the weight files hold, before they are loaded."""
    agree: bool = False
    """Load nothing before `Agreed` comes."""
    gpu: int = 0
    """Which of its host's GPUs is this rank's, where it computes on one."""


class Meet(msgspec.Struct, frozen=True, array_like=True, tag="meet"):
    """To a rank but the first: on which port rank 0 waits for it."""

    port: int


class Agreed(msgspec.Struct, frozen=True, array_like=True, tag="agreed"):
    """To a rank that waits for it: every rank's weight files hold the same bytes."""


class Turned(msgspec.Struct, frozen=True, array_like=True, tag="turned"):
    """To a rank that dialled, last: why the start fails."""

    text: str


class Work(msgspec.Struct, frozen=True, array_like=True, tag="work"):
    """To a rank: execute a step. `digest` covers leases and kept states after the step's ends,
    moves and begins."""

    digest: int
    step: Step


class Learn(msgspec.Struct, frozen=True, array_like=True, tag="learn"):
    """To a rank, once, before any write or fetch: records lie in `folder`, and are of `identity`.
    Those on their way go to `temporary`. Has no answer."""

    folder: str
    temporary: str
    identity: bytes


class Fetch(msgspec.Struct, frozen=True, array_like=True, tag="fetch"):
    """To a rank: read the pages with these keys, one chain from `root` on, and the fixed part at
    its end, behind the steps. `tokens` are those of all pages, as little-endian uint32. Has no
    answer but `Fetched`."""

    job: int
    root: bytes
    keys: tuple[bytes, ...]
    tokens: bytes


class Forget(msgspec.Struct, frozen=True, array_like=True, tag="forget"):
    """To a rank: nobody wants what `job` reads. Has no answer."""

    job: int


class Ping(msgspec.Struct, frozen=True, array_like=True, tag="ping"):
    """To a rank, between steps: are you there?"""


class Stop(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    """To a rank: end."""


class Join(msgspec.Struct, frozen=True, array_like=True, tag="join"):
    """From a rank that dialled, first: what it is, for comparison with the others before anything
    is loaded. The tables are by name, with values as people read them."""

    rank: int
    versions: dict[str, str]
    settings: dict[str, str]
    files: dict[str, str]
    place: str
    """Equal for ranks that see the very same weight files."""
    room: int
    """Bytes of memory that its host has for each rank that is started there."""


class Meeting(msgspec.Struct, frozen=True, array_like=True, tag="meeting"):
    """From rank 0 of several, once: the port on which it waits for the others."""

    port: int


class Proof(msgspec.Struct, frozen=True, array_like=True, tag="proof"):
    """From a rank that was asked for it: what the weight files hold, a digest a file."""

    files: dict[str, str]


class Beat(msgspec.Struct, frozen=True, array_like=True, tag="beat"):
    """From a rank, every while, also in the middle of a step: a sign of life."""


class Loading(msgspec.Struct, frozen=True, array_like=True, tag="loading"):
    """From a rank: bytes of weights read, of how many."""

    done: int
    total: int


class Phase(msgspec.Struct, frozen=True, array_like=True, tag="phase"):
    """From a rank that starts: what it does now, in a word."""

    name: str


class Note(msgspec.Struct, frozen=True, array_like=True, tag="note"):
    """From a rank, at any time: a line for the log."""

    text: str


class Report(msgspec.Struct, frozen=True):
    """What a rank has when it is ready. Bytes as its tensors hold them: of the page pool without
    its null page, of all lanes' fixed parts, and of all slots of kept states."""

    weight_bytes: int
    pool_bytes: int
    lane_bytes: int
    slot_bytes: int
    mtp: bool
    """The next-token layer's weights are there."""
    skipped_vision: int
    """Tensors of the checkpoint that belong to its vision part."""
    exact_tiles: bool
    """The self-check's verdict: rows in one tile do not change each other's bits here."""
    fingerprint: str
    """Of the weights that this rank read."""
    spec: SpecNumbers
    """As this rank has read them."""
    layout: str = ""
    """What a page and a fixed part hold as bytes, section by section."""
    numerics: str = ""
    """What a row's bits may depend on beside weights and tokens: libraries, processor, tiles."""


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """From a rank that has started: what it has."""

    report: Report


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """From a rank: a step is executed."""

    result: StepResult


class Wrote(msgspec.Struct, frozen=True, array_like=True, tag="wrote"):
    """From a rank, at any time: record `number` lies whole in the temporary folder, `size` bytes of
    `raw`; or it does not, and `error` says why."""

    number: int
    size: int
    raw: int
    error: str = ""


class Fetched(msgspec.Struct, frozen=True, array_like=True, tag="fetched"):
    """From a rank, at any time: the first `count` records of `job`, its pages and then its fixed
    part, are read and verified, `size` bytes. Or record `lost` is not what was written, or cannot
    be read, and `error` says why."""

    job: int
    count: int
    size: int = 0
    lost: int = -1
    error: str = ""


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    """From a rank: a step does not fit what it knows; nothing has changed. `name` is the error's
    class."""

    text: str
    name: str


class Pong(msgspec.Struct, frozen=True, array_like=True, tag="pong"):
    """From a rank: I am here."""


class Broken(msgspec.Struct, frozen=True, array_like=True, tag="broken"):
    """From a rank, last: it cannot go on. `name` is the error's class, `text` one line."""

    name: str
    text: str


ToRank = Hello | Agreed | Meet | Turned | Work | Learn | Fetch | Forget | Ping | Stop
Starting = Join | Meeting | Proof | Loading | Phase | Ready
ToServer = Starting | Beat | Note | Done | Wrote | Fetched | Refused | Pong | Broken

M = TypeVar("M", bound=ToRank | ToServer)


class FrameWriter:
    """Messages to frames, numbered from 0."""

    __slots__ = ("_encoder", "_sequence")

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._sequence = 0

    def frame(self, message: ToRank | ToServer) -> bytes:
        """The next frame. `FrameTooLarge` when the message does not fit one; it then has no
        number."""
        body = self._encoder.encode(message)
        if len(body) > LIMIT_BYTES:
            raise FrameTooLarge(f"a message of {len(body)} bytes; a frame holds {LIMIT_BYTES}")
        header = _HEADER.pack(len(body), VERSION, self._sequence)
        self._sequence += 1
        return header + body


class FrameReader(Generic[M]):
    """Frames to messages of one side, checked in this order: version, number, size, body.

    After an error the stream is of no more use.
    """

    __slots__ = ("_buffer", "_decode_body", "_sequence")

    def __init__(self, decode: Callable[[bytes | bytearray], M]) -> None:
        self._decode_body = decode
        self._buffer = bytearray()
        self._sequence = 0

    def feed(self, data: bytes) -> list[M]:
        """The messages that `data` completes, in order."""
        buffer = self._buffer
        buffer += data
        start = 0
        messages = []
        while len(buffer) - start >= _HEADER.size:
            body, stop = self._span(start)
            if len(buffer) < stop:
                break
            messages.append(self._decode(buffer[body:stop]))
            start = stop
        del buffer[:start]
        return messages

    def end(self) -> None:
        """The stream has ended: `FrameCut` when it did so inside a frame."""
        if self._buffer:
            raise FrameCut(f"the stream ended {len(self._buffer)} bytes into a frame")

    def _span(self, start: int) -> tuple[int, int]:
        """Half-open range of the body of the frame at `start`."""
        length, version, sequence = _HEADER.unpack_from(self._buffer, start)
        if version != VERSION:
            raise FrameVersion(f"the frame has version {version}, this side speaks {VERSION}")
        if sequence != self._sequence:
            raise FrameOrder(f"the frame has number {sequence}, the next one is {self._sequence}")
        if length > LIMIT_BYTES:
            raise FrameTooLarge(f"the frame has {length} bytes; the limit is {LIMIT_BYTES}")
        body = start + _HEADER.size
        return body, body + length

    def _decode(self, body: bytearray) -> M:
        try:
            message = self._decode_body(body)
        except msgspec.DecodeError as error:
            raise FrameMalformed(f"the frame holds no message of this side: {error}") from None
        self._sequence += 1
        return message


def rank_reader() -> FrameReader[ToRank]:
    """The reader of a rank."""
    decoder: msgspec.msgpack.Decoder[ToRank] = msgspec.msgpack.Decoder(ToRank)
    return FrameReader(decoder.decode)


def server_reader() -> FrameReader[ToServer]:
    """The reader of the server."""
    decoder: msgspec.msgpack.Decoder[ToServer] = msgspec.msgpack.Decoder(ToServer)
    return FrameReader(decoder.decode)
