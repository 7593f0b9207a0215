"""A rank that is started by hand or on another host: it dials the server, and is then as any other.

Owns the way from an address to a rank that runs. Imports no torch. Invariant: the process ends with
an exit status and one line on stderr, within the seconds it was given when nobody answers, and soon
after the server when that ends or the network between them does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass

import msgspec

from streamglm.errors import FrameMalformed, StartError, StreamEnded, StreamglmError
from streamglm.ranks import handshake
from streamglm.ranks import rank as rank_process
from streamglm.ranks.channel import BlockingChannel
from streamglm.ranks.network import split, watch
from streamglm.ranks.wire import Hello, Join, Turned

_RETRY_SECONDS = 0.2
_KNOCK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Dial:
    """What such a rank knows before it meets the server."""

    address: str
    """HOST:PORT of the server's `--master`."""
    token: bytes
    join: Join
    folder: str
    """Its own copy of the checkpoint."""
    threads: int
    patience: float
    """Seconds to try for, until somebody listens at the address."""
    life: float
    """Seconds without a word of the server's system after which it is gone."""
    gpu: int = 0
    """Which of this host's GPUs is the rank's."""


def main(dial: Dial, build: str, parent: socket.socket | None = None) -> None:
    """The process. With `parent`, it also ends when the other end of that socket closes."""
    if parent is not None:
        rank_process.end_with(parent)
        for number in rank_process.SERVERS_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, rank_process.SERVERS_SIGNALS)
    sys.exit(run(dial, build))


def run(dial: Dial, build: str) -> int:
    """Dial, and be a rank; returns the exit status."""
    rank = dial.join.rank
    try:
        with connect(dial) as sock:
            channel = BlockingChannel(sock)
            channel.send(dial.join)
            hello = _taken(channel, dial)
            rank_process.end_with(sock, f"streamglm: rank {rank}: the server is gone\n")
            status = rank_process.serve(channel, build, hello)
    except StreamglmError as error:
        gone = isinstance(error, StreamEnded)
        rank_process.say(rank, "the server is gone" if gone else error.message)
        return rank_process.EXIT_FAILED
    return status


def connect(dial: Dial) -> socket.socket:
    """A stream to the server on which both have proved that they have the token. Raises
    `StartError`."""
    deadline = time.monotonic() + dial.patience
    while True:
        try:
            sock = socket.create_connection(split(dial.address), timeout=_KNOCK_SECONDS)
        except OSError as error:
            if time.monotonic() > deadline:
                raise StartError(
                    f"--master {dial.address}: no server answers for {dial.patience:g} s "
                    f"({error.strerror or error})"
                ) from None
            time.sleep(_RETRY_SECONDS)
            continue
        try:
            watch(sock, dial.life)
            handshake.knock(sock, dial.token, dial.join.rank)
        except OSError as error:
            sock.close()
            raise StartError(f"--master {dial.address}: {error.strerror or error}") from None
        except StartError:
            sock.close()
            raise
        sock.settimeout(None)
        return sock


def _taken(channel: BlockingChannel, dial: Dial) -> Hello:
    """What the server tells a rank that it takes, with what is this host's own. Raises
    `StartError` with the server's line."""
    message = channel.receive()
    if isinstance(message, Turned):
        raise StartError(message.text)
    if not isinstance(message, Hello):
        raise FrameMalformed(f"the first message is {type(message).__name__}, not Hello")
    own = msgspec.structs.replace(message.settings, model=dial.folder, threads=dial.threads)
    return msgspec.structs.replace(message, settings=own, gpu=dial.gpu)


def from_environment(name: str) -> str | None:
    """A variable of a launcher such as torchrun; None where it is not set."""
    return os.environ.get(name) or None


def torchrun_address() -> str | None:
    """Where torchrun's variables say that the server is: `MASTER_ADDR`, and the port after
    `MASTER_PORT` when torchrun's own store listens at that one. None without them."""
    host, port = from_environment("MASTER_ADDR"), from_environment("MASTER_PORT")
    if host is None or port is None:
        return None
    with contextlib.suppress(ValueError):
        held = from_environment("TORCHELASTIC_USE_AGENT_STORE") == "True"
        return f"[{host}]:{int(port) + held}" if ":" in host else f"{host}:{int(port) + held}"
    raise StartError(f"MASTER_PORT is {port!r}; it may be 1 to 65534")
