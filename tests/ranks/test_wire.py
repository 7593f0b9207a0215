"""Messages survive the wire whole, and a bad frame is refused by name before it means anything."""

from __future__ import annotations

import random
import struct
import types
import typing
from typing import Any

import msgspec
import pytest

from streamglm.edge.schemas import MOST_BIASES
from streamglm.errors import (
    FrameCut,
    FrameMalformed,
    FrameOrder,
    FrameTooLarge,
    FrameVersion,
    WireError,
)
from streamglm.ranks import wire
from streamglm.ranks.wire import FrameReader, FrameWriter, Ping, ToRank, ToServer, Work
from streamglm.step import Begin, Draw, Step, pack

MESSAGES = [*typing.get_args(ToRank), *typing.get_args(ToServer)]


def value_of(kind: Any, draw: random.Random) -> Any:
    """A value of an annotation, at the edges of what it may hold more often than not."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind(*(value_of(hint, draw) for hint in typing.get_type_hints(kind).values()))
    if typing.get_origin(kind) is tuple:
        inner = typing.get_args(kind)
        if inner[-1] is Ellipsis:
            return tuple(value_of(inner[0], draw) for _ in range(draw.choice([0, 1, 3, 40])))
        return tuple(value_of(hint, draw) for hint in inner)
    if typing.get_origin(kind) is dict:
        key, value = typing.get_args(kind)
        return {value_of(key, draw): value_of(value, draw) for _ in range(draw.choice([0, 3]))}
    if isinstance(kind, types.UnionType):
        return value_of(draw.choice(kind.__args__), draw)
    if kind is bool:
        return draw.random() < 0.5
    if kind is int:
        return draw.choice([0, 1, 127, 128, 65536, 2**32, 2**63, 2**64 - 1, -1, -(2**63)])
    if kind is float:
        return draw.choice([0.0, -0.5, 1e-300, 0.1, float(2**60)])
    if kind is bytes:
        return draw.choice([b"", b"\x00", b"\xff" * 300])
    if kind is str:
        return draw.choice(["", "rank", "Stück für Stück", "\x00\n", "字" * 300])
    assert kind is type(None), f"no value is known for {kind}"
    return None


def reader_of(message: type) -> FrameReader[Any]:
    return wire.rank_reader() if message in typing.get_args(ToRank) else wire.server_reader()


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_every_message_survives_in_any_pieces(kind: type) -> None:
    draw = random.Random(kind.__name__)
    sent = [value_of(kind, draw) for _ in range(20)]
    writer = FrameWriter()
    stream = b"".join(writer.frame(message) for message in sent)
    for piece in (1, 7, len(stream)):
        reader = reader_of(kind)
        received = []
        for start in range(0, len(stream), piece):
            received += reader.feed(stream[start : start + piece])
        reader.end()
        assert received == sent
        assert [type(message) for message in received] == [kind] * 20


def test_every_message_is_frozen_and_tagged_alone() -> None:
    tags = [kind.__struct_config__.tag for kind in MESSAGES]
    assert len(set(tags)) == len(tags)
    assert all(kind.__struct_config__.frozen for kind in MESSAGES)


@pytest.mark.parametrize("kept", [1, 13, 14, 15])
def test_a_cut_frame_is_named(kept: int) -> None:
    reader = wire.rank_reader()
    assert reader.feed(FrameWriter().frame(Work(5, Step(ends=(1, 2))))[:kept]) == []
    with pytest.raises(FrameCut, match=f"{kept} bytes into a frame"):
        reader.end()


def frame(length: int, version: int, sequence: int, body: bytes) -> bytes:
    return struct.pack("<IHQ", length, version, sequence) + body


PING = msgspec.msgpack.encode(Ping())


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (frame(wire.LIMIT_BYTES + 1, wire.VERSION, 0, b""), FrameTooLarge, "16777217 bytes"),
        (frame(len(PING), 9, 0, PING), FrameVersion, "version 9, this side speaks"),
        (frame(len(PING), wire.VERSION, 1, PING), FrameOrder, "number 1, the next one is 0"),
        (frame(len(PING) - 1, wire.VERSION, 0, PING), FrameMalformed, "truncated"),
        (frame(3, wire.VERSION, 0, b"\x91\xa0\xff"), FrameMalformed, "no message"),
        (FrameWriter().frame(wire.Pong()), FrameMalformed, "pong"),
    ],
    ids=["large", "version", "order", "short", "noise", "other-side"],
)
def test_a_bad_frame_is_refused_by_name(data: bytes, error: type[WireError], text: str) -> None:
    with pytest.raises(error, match=text):
        wire.rank_reader().feed(data)


def test_a_repeated_and_a_lost_frame_are_out_of_order() -> None:
    writer = FrameWriter()
    first, second, third = (writer.frame(Ping()) for _ in range(3))
    for bad in (first, third):
        reader = wire.rank_reader()
        assert reader.feed(first) == [Ping()]
        with pytest.raises(FrameOrder):
            reader.feed(bad)
    reader = wire.rank_reader()
    assert reader.feed(first + second + third) == [Ping()] * 3


def test_a_message_past_the_limit_is_not_sent_and_takes_no_number() -> None:
    writer = FrameWriter()
    with pytest.raises(FrameTooLarge):
        writer.frame(wire.Note("x" * (wire.LIMIT_BYTES + 1)))
    assert wire.server_reader().feed(writer.frame(wire.Note("x"))) == [wire.Note("x")]


def test_the_largest_step_of_the_real_model_fits_a_frame() -> None:
    """64 lanes that begin with a whole window of a million tokens each, every id of the vocabulary
    in its prompt and in its mask, and as many biases as a body may hold."""
    ids = pack(range(154_880))
    bias = tuple((150_000 + i, 0.1) for i in range(MOST_BIASES))
    draw = Draw(1.0, 0, 1.0, 0.0, 2**63, 1.1, 0.5, 0.5, bias, ids, 20)
    pages = tuple(range(130_000, 130_000 + 2049))
    step = Step(begins=tuple(Begin(lane, pages, draw, None, ids) for lane in range(64)))
    assert len(FrameWriter().frame(Work(2**64 - 1, step))) < wire.LIMIT_BYTES // 3
