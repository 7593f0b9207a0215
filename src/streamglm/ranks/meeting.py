"""How a rank finds the others: a store in the process of rank 0, at a port that the system chose.

Owns the order of a meeting, and the seconds after which a rank that waits for another gives up.
Knows no model. The port goes to the server over rank 0's channel and from there to the others, so
that no port has to be guessed and none can be taken twice. Invariant: all ranks of a world meet,
or every one that waits raises `PeerLost`.
"""

from __future__ import annotations

import atexit
import os

from streamglm.model.peers import Alone, Peers
from streamglm.ranks.collectives import TIMEOUT_SECONDS, Group, follow, lead
from streamglm.ranks.network import interface_of
from streamglm.ranks.wire import Hello
from streamglm.ranks.worker import Told

PEER_SECONDS = 120.0
"""For another rank, in the middle of a step. Ranks do the same work, so that none is late by much;
the server notices a rank that is gone long before, and ends those that wait for it."""


def seconds_of(device: str) -> float:
    """How long ranks on `device` wait for one another. On GPUs one may compile what another has at
    hand: as long as the server waits for a step."""
    return PEER_SECONDS if device == "cpu" else TIMEOUT_SECONDS


def meet(hello: Hello, told: Told, *, device: str = "cpu", seconds: float | None = None) -> Peers:
    """The other ranks of `hello.world`, once all are there; `device` is this rank's."""
    seconds = seconds_of(device) if seconds is None else seconds
    if hello.world == 1:
        return Alone()
    interface = interface_of(hello.own)
    if interface is not None:
        os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
    if hello.rank == 0:
        store, port = lead(hello.meet, seconds)
        told.meet(port)
    else:
        store = follow(hello.meet, told.meet(None), seconds)
    group = Group(
        store,
        hello.rank,
        hello.world,
        device=device,
        interface=interface,
        timeout=seconds,
    )
    atexit.register(group.close)  # its threads must not outlive the interpreter
    return group
