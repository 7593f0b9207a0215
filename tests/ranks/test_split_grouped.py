"""The latent split between three processes over gloo: the bits that it has between threads, and the
bytes that it says it sends.

The two ways that rows cross, and a carry, are in one walk; that each counts is shown between
threads (tests/model), where a step costs no process.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from support.grouped import processes
from support.peers import World
from support.tiny import TinyShape, tiny_model, write
from support.walked import walk, walk_grouped

WORLD = 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.set_num_threads(1)
    write(tiny_model(TinyShape(num_attention_heads=7, linear_num_heads=7), 0), tmp_path)
    return tmp_path


def test_processes_compute_what_threads_compute(folder: Path) -> None:
    threads = World(WORLD)
    want = threads.run(lambda peer: walk(peer, folder))
    assert len({logits for logits, _ in want}) == 1
    with processes(WORLD, walk_grouped, folder) as found:
        for rank, ((logits, sent), one) in enumerate(zip(want, found, strict=True)):
            assert one.logits == logits
            assert one.sent == sent
            assert sent.get("fetch", 0) == one.transport.get("spread", 0)
            assert sent["exchange"] + sent.get("carry", 0) == one.transport["trade"]
            for call in ("add", "join", "trade", "spread"):
                between = [one for one in threads.sent(call) if one.source == rank]
                assert one.transport.get(call, 0) == sum(message.bytes for message in between)
    kinds = {kind for _, sent in want for kind in sent}
    assert kinds == {"exchange", "fetch", "carry"}
