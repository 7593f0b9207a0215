"""The calls of `Peers` over gloo between processes, and between the threads that tests use.

Both are held to what was worked out without either, so what holds between threads holds between
processes. That a difference shows: the ranks' partials differ by powers of ten, so that a sum in
another order has other bits.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import pytest
import torch

from streamglm.errors import PeerLost
from streamglm.ranks.collectives import Group, follow
from support.grouped import (
    LARGE,
    ROWS,
    WIDTHS,
    Found,
    calls,
    hashed,
    partial,
    processes,
    rounded,
    sequential,
)
from support.peers import Mismatch, ThreadPeer, World


def expected(rank: int, world: int) -> Found:
    added = sequential(world).tolist()
    large = hashed(sequential(world, LARGE))
    joined = np.repeat(np.arange(world), WIDTHS[:world]).astype(np.float32)
    beside = np.tile(joined, (ROWS, 1)).tolist()
    after, before = (rank + 1) % world, (rank - 1) % world
    traded = [
        np.full((2, 3), before).tolist(),
        np.full((2, 3), before + 0.5).tolist(),
        np.full(5, after + 100.0).tolist(),
        [7.0 if rank == 1 else 0.0] * 4,
    ]
    return Found((added, added), large, (beside, beside), traded, [[world - 1.0] * 2] * 2)


def sent(rank: int, world: int, *, pieces: bool) -> dict[str, int]:
    """Bytes by call: twice added and joined, and added once more, with three ranks in pieces; once
    traded and spread."""
    bounds = [LARGE * place // world for place in range(world + 1)]
    own = bounds[rank + 1] - bounds[rank]
    large = LARGE * (world - 1)
    if pieces and world > 2:  # the others' pieces, and the sum of its own
        large = (LARGE - own) + own * (world - 1)
    trades = 2 * 3 * 4 + 2 * 3 * 2 + 5 * 4 + (4 * 4 if rank == 0 else 0)
    return {
        "add": (2 * ROWS * (world - 1) + large) * 256 * 4,
        "join": 2 * ROWS * WIDTHS[rank] * 4 * (world - 1),
        "trade": trades,
        "spread": 4 * 4 * (world - 1) if rank == world - 1 else 0,
    }


def _walk(group: Group, leaves: bool) -> Any:
    """The walk; then rank 1 ends, or keeps silent, while every other waits for it."""
    found = calls(group), dict(group.sent)
    if group.rank != 1:
        return *found, _missed(group)
    if leaves:
        os._exit(9)
    return *found, ""


def _missed(group: Group) -> str:
    began = time.monotonic()
    try:
        if group.rank == 0:
            group.trade([(1, torch.zeros(4))], [(1, torch.zeros(4))])
        else:
            group.add(np.zeros((8, 256), np.float32))
    except PeerLost as error:
        return error.message if time.monotonic() - began < 30.0 else "it took too long"
    return "no error"


def _check(
    found: Any, counted: dict[str, int], rank: int, world: int, *, pieces: bool = True
) -> None:
    assert found == expected(rank, world)
    assert {"spread": 0, **counted} == sent(rank, world, pieces=pieces)


def test_between_two_processes_of_which_one_does_not_answer() -> None:
    with processes(2, _walk, False, timeout=4.0) as answers:
        for rank, (found, counted, said) in enumerate(answers):
            _check(found, counted, rank, 2)
            if rank == 0:
                assert said.startswith("rank 0 of 2: trade: rank 1 is gone, or did not answer")
                assert "within 4 s" in said


def test_between_three_processes_of_which_one_ends() -> None:
    with processes(3, _walk, True, timeout=60.0) as answers:
        for rank in (0, 2):
            found, counted, said = answers[rank]
            _check(found, counted, rank, 3)
            who = "trade: rank 1 is" if rank == 0 else "add: another rank is"
            assert said.startswith(f"rank {rank} of 3: {who} gone")
        assert answers[1] is None


@pytest.mark.parametrize("world", [2, 3])
def test_between_threads(world: int) -> None:
    threads = World(world)
    for rank, found in enumerate(threads.run(calls)):
        counted = dict.fromkeys(("add", "join", "trade", "spread"), 0)
        for one in threads.record:
            counted[one.call] += one.bytes if one.source == rank else 0
        _check(found, counted, rank, world, pieces=False)


def _both_ways(group: Group, _: None) -> Any:
    found = rounded(group), calls(group)
    group._gathers = True  # as between GPUs
    return found, (rounded(group), calls(group))


def test_what_gpus_gather_is_what_cpus_send_one_another() -> None:
    """Parts of unlike widths too, and a sum into bfloat16 is rounded once, whole and in pieces: red
    with the parts rounded."""
    with processes(3, _both_ways, None, timeout=60.0) as answers:
        for sent, gathered in answers:
            assert gathered == sent
            assert sent[0] == (True, True)


def test_the_order_of_a_sum_shows() -> None:
    parts = [partial(rank) for rank in range(3)]
    assert (parts[2] + parts[1] + parts[0]).tolist() != sequential(3).tolist()


def test_nobody_at_the_store_is_said() -> None:
    with pytest.raises(PeerLost, match=r"no rank listens at 127\.0\.0\.1, port 1:"):
        follow("127.0.0.1", 1, timeout=0.5)


# -- threads find what a transport would leave to chance


def _run(world: int, body: Any) -> None:
    World(world).run(body)


def test_different_calls_do_not_meet() -> None:
    def body(peer: ThreadPeer) -> None:
        peer.add(torch.zeros(1 + peer.rank, 2))

    with pytest.raises(Mismatch, match=r"rank 1 calls .*and others"):
        _run(2, body)


def test_a_send_that_nobody_receives() -> None:
    def body(peer: ThreadPeer) -> None:
        peer.trade([(1, torch.zeros(2))] if peer.rank == 0 else [], [])

    with pytest.raises(Mismatch, match="never received"):
        _run(3, body)


def test_a_receive_that_nobody_sends() -> None:
    def body(peer: ThreadPeer) -> None:
        peer.trade([], [(0, torch.zeros(2))] if peer.rank == 1 else [])

    with pytest.raises(Mismatch, match=r"ranks \[1\] wait for what nobody sends"):
        _run(3, body)


def test_sizes_that_differ() -> None:
    def body(peer: ThreadPeer) -> None:
        if peer.rank == 0:
            peer.trade([(1, torch.zeros(2))], [])
        else:
            peer.trade([], [(0, torch.zeros(3))])

    with pytest.raises(Mismatch, match="rank 0 sends"):
        _run(2, body)
