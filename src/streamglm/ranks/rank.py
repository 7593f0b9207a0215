"""A rank's process: start, then receive, check, do, answer, until the server says stop or is gone.

Owns the life of the process. Imports no torch itself: the server imports this module to spawn it,
and `build`, the dotted name of the function that loads the model, is imported in the child alone.
Invariant: the process ends when the server does, however that ends; a failure is told to the
server in one message before the exit code says the same.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import cast

from streamglm.errors import FrameMalformed, StartError, StreamEnded, StreamglmError
from streamglm.ranks.channel import BlockingChannel
from streamglm.ranks.records import Records
from streamglm.ranks.wire import (
    Agreed,
    Beat,
    Broken,
    Hello,
    Loading,
    Meet,
    Meeting,
    Note,
    Phase,
    Proof,
    Ready,
    Stop,
    ToRank,
    Turned,
)
from streamglm.ranks.worker import Build, Worker
from streamglm.weights import files

SERVERS_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Sent to the whole process group by a terminal or a service manager; the server answers them, and
decides when its ranks end."""

EXIT_FAILED = 1
EXIT_ORPHAN = 70
"""The server is gone without a word."""

_ORPHAN_SECONDS = 1.0


def main(sock: socket.socket, build: str) -> None:
    """The process, over its end of the socket. `build` is `package.module:function`."""
    for number in SERVERS_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SERVERS_SIGNALS)
    end_with(sock)
    sys.exit(serve(BlockingChannel(sock), build))


def serve(channel: BlockingChannel, build: str, hello: Hello | None = None) -> int:
    """The rank's loop; returns the exit code. `hello`: what the server has said already
    to a rank that dialled."""
    try:
        try:
            _serve(channel, build, hello)
        except StreamglmError as error:
            if hello is not None:
                gone = isinstance(error, StreamEnded)
                say(hello.rank, "the server is gone" if gone else error.message)
            if isinstance(error, StreamEnded):
                return EXIT_ORPHAN
            channel.send(Broken(type(error).__name__, error.message))
            return EXIT_FAILED
        except Exception as error:
            traceback.print_exc()
            channel.send(Broken(type(error).__name__, str(error).partition("\n")[0]))
            return EXIT_FAILED
    except StreamEnded:  # nobody is left to tell
        return EXIT_FAILED
    return 0


def say(rank: int, line: str) -> None:
    """The last line of a rank that has no server beside it to say why it ends."""
    sys.stderr.write(f"streamglm: rank {rank}: {line}\n")


def _serve(channel: BlockingChannel, build: str, said: Hello | None) -> None:
    hello = said or channel.receive()
    if not isinstance(hello, Hello):
        raise FrameMalformed(f"the first message is {type(hello).__name__}, not Hello")
    if hello.beat:
        _beat(channel, hello.beat)
    if hello.prove:
        channel.send(Proof(files.whole(Path(hello.settings.model))))
    if hello.agree and not isinstance(message := _not_turned(channel), Agreed):
        raise FrameMalformed(f"{type(message).__name__} where agreement was due")
    records = Records(channel.send, hello.rank, hello.world)
    executor, report = _function(build)(hello, _Telling(channel, records))
    gc.freeze()  # the model's objects live as long as the process: no collection looks at them
    worker = Worker(hello.settings, executor, records, world=hello.world)
    channel.send(Ready(report))
    try:
        while not isinstance(message := channel.receive(), Stop):
            if (answer := worker.answer(message)) is not None:
                channel.send(answer)
    finally:
        records.close()


def _function(name: str) -> Build:
    module, _, attribute = name.partition(":")
    return cast("Build", getattr(importlib.import_module(module), attribute))


def _not_turned(channel: BlockingChannel) -> ToRank:
    """The next message. Raises `StartError` when the start has failed."""
    message = channel.receive()
    if isinstance(message, Turned):
        raise StartError(message.text)
    return message


class _Telling:
    """The server hears how the start goes on."""

    def __init__(self, channel: BlockingChannel, records: Records) -> None:
        self.records = records
        self._channel = channel

    def loading(self, done: int, total: int) -> None:
        self._channel.send(Loading(done, total))

    def phase(self, name: str) -> None:
        self._channel.send(Phase(name))

    def meet(self, port: int | None) -> int:
        if port is not None:
            self._channel.send(Meeting(port))
            return port
        message = _not_turned(self._channel)
        if not isinstance(message, Meet):
            raise FrameMalformed(f"{type(message).__name__} where a place to meet was due")
        return message.port

    def note(self, text: str) -> None:
        self._channel.send(Note(text))


def _beat(channel: BlockingChannel, seconds: float) -> None:
    """Give signs of life until this process or the server ends."""

    def beat() -> None:
        with contextlib.suppress(StreamEnded):
            while True:
                channel.send(Beat())
                time.sleep(seconds)

    threading.Thread(target=beat, name="beat", daemon=True).start()


def end_with(sock: socket.socket, line: str = "") -> None:
    """End this process soon after the server's end of the socket closes, also when the main
    thread sits in a long pass and would not read the end of the stream for minutes. `line` is what
    it says then."""

    def watch() -> None:
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLRDHUP)
        poll.poll()
        time.sleep(_ORPHAN_SECONDS)  # the main thread leaves by itself when it is at rest
        os.write(2, line.encode())
        os._exit(EXIT_ORPHAN)

    threading.Thread(target=watch, name="end-with-server", daemon=True).start()
