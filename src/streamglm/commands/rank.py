"""`streamglm rank`: one rank of a server that runs elsewhere; and the ranks of a host of its own.

Owns the two ways to start ranks without a server beside them: one process a rank, by hand or by
torchrun, and `serve --node-rank K`, which starts the host's share and ends them together. Imports
no torch itself. Invariant: when one rank of a host ends, none of that host is left.
"""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import socket
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess

from streamglm import config
from streamglm.commands import logs
from streamglm.commands.checkpoint import Checkpoint, read_checkpoint
from streamglm.commands.hosts import Share, room_of, settled, share_of, threads_of
from streamglm.commands.joining import join_of, token_of
from streamglm.config import Settings
from streamglm.errors import SettingError
from streamglm.ranks import dial
from streamglm.ranks.client import BUILD
from streamglm.ranks.process import signals_blocked, without_main
from streamglm.ranks.rank import SERVERS_SIGNALS

FAILED = 1
_RANK_MOST = 0xFFFFFFFF
"""That a handshake can say; the server refuses what no rank of its world has, by both numbers."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """MODEL, the settings of `serve`, and the number of the rank."""
    config.add_arguments(parser)
    parser.add_argument(
        "--rank", metavar="RANK", help="number of this rank, from 0 (default: RANK of torchrun)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Be one rank until the server ends. Raises `StartError` before it dials."""
    beside = _variable("LOCAL_WORLD_SIZE") or 1
    settings = settled(_launched(config.resolve(vars(arguments))), beside)
    rank = _number(arguments.rank)
    logs.set_up(settings.log_level, settings.log_format)
    checkpoint = read_checkpoint(settings)
    place = _place(beside)
    share = Share(settings.ranks, range(rank, rank + 1), serves=False)
    known = rank < settings.ranks
    room = room_of(checkpoint, share, settings.device, gpu_of=place) if known else 0
    if settings.device != "cuda":
        room //= beside  # which have the host's memory together, and GPUs of their own
    threads = threads_of(settings, beside)
    return dial.run(_dial(settings, checkpoint, rank, room, threads, place), BUILD)


def _place(beside: int) -> int:
    """This rank's place among the `beside` ranks of its host that a launcher starts."""
    raw = dial.from_environment("LOCAL_RANK") or "0"
    if not _is_whole(raw) or int(raw) >= beside:
        raise SettingError(f"LOCAL_RANK is {raw!r}; it may be 0 to LOCAL_WORLD_SIZE less one")
    return int(raw)


def _launched(settings: Settings) -> Settings:
    """The settings, completed by what a launcher has put into the environment."""
    world = _variable("WORLD_SIZE")
    if world is not None and settings.ranks not in (1, world):
        raise SettingError(f"--ranks is {settings.ranks}, and WORLD_SIZE is {world}: be one")
    master = settings.master or dial.torchrun_address()
    if master is None:
        raise SettingError("--master is none: a rank needs HOST:PORT of the server that it is of")
    return replace(settings, ranks=world or settings.ranks, master=master)


def _variable(name: str) -> int | None:
    """A launcher's count; None where it is not set."""
    raw = dial.from_environment(name)
    if raw is None:
        return None
    if not _is_whole(raw) or int(raw) < 1:
        raise SettingError(f"{name} is {raw!r}; it may be 1 or more")
    return int(raw)


def _is_whole(raw: str) -> bool:
    return raw.isascii() and raw.isdigit()


def _number(given: str | None) -> int:
    source, raw = "--rank", given
    if raw is None:
        source, raw = "RANK", dial.from_environment("RANK")
    if raw is None:
        raise SettingError("--rank is none: a rank needs its number, 0 to --ranks less one")
    if not _is_whole(raw) or int(raw) > _RANK_MOST:
        raise SettingError(f"{source} is {raw!r}; it may be 0 to --ranks less one")
    return int(raw)


def _dial(
    settings: Settings, checkpoint: Checkpoint, rank: int, room: int, threads: int, place: int
) -> dial.Dial:
    assert settings.master is not None, "a rank without a server"
    return dial.Dial(
        address=settings.master,
        token=token_of(settings),
        join=join_of(settings, checkpoint, rank, room),
        folder=checkpoint.place,
        threads=threads,
        patience=settings.rank_wait_seconds,
        life=settings.rank_silence_seconds,
        gpu=place,
    )


def follow(settings: Settings, checkpoint: Checkpoint) -> int:
    """Start this host's share of the ranks, and return when they have ended. Raises
    `StartError`."""
    share = share_of(settings)
    room, threads = (
        room_of(checkpoint, share, settings.device),
        threads_of(settings, len(share.local)),
    )
    context = multiprocessing.get_context("spawn")
    ours, theirs = socket.socketpair()
    processes = []
    with ours, theirs:
        for place, rank in enumerate(share.local):
            one = _dial(settings, checkpoint, rank, room, threads, place)
            process = context.Process(target=dial.main, args=(one, BUILD, theirs), daemon=True)
            with signals_blocked(), without_main():
                process.start()
            processes.append(process)
        for number in SERVERS_SIGNALS:
            signal.signal(number, lambda *_: _kill(processes))
        wait([process.sentinel for process in processes])
        for process in processes:
            process.join(_GRACE_SECONDS)
            process.kill()
            process.join()
    return 0 if all(process.exitcode == 0 for process in processes) else FAILED


def _kill(processes: Sequence[SpawnProcess]) -> None:
    for process in processes:
        process.kill()


_GRACE_SECONDS = 5.0
"""For the other ranks of a host to see by themselves that the group has ended."""
