"""The executor on kernels, in a process in which Triton's interpreter runs them on the CPU.

Owns what that process does: it takes a step of given lanes and tells what came of it. Run as a
module, this file is that process, which is asked for a scene of a folder's model in some sizes.
`kernels` says that every operator runs its kernel; without it those that have a reference in torch
run that, and only the rest is interpreted, which is ten times as fast. `world` is how many ranks
compute, as threads of the process.
"""

from __future__ import annotations

import contextlib
import hashlib
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamglm.kernels.launch import interpreted
from support.asked import Asked, answer


class OnDevice(Asked):
    """The process, from the tests' side."""

    def __init__(self) -> None:
        super().__init__("support.on_device")

    def tell(self, what: str, folder: Path, **sizes: int) -> Any:
        """What the process found. Raises `AssertionError` with its traceback."""
        found = self.ask(what, str(folder), sizes)
        assert "crashed" not in found, found["crashed"]
        return found["told"]


def compared(folder: Path, rows: int, windows: int, world: int = 1) -> dict[str, Any]:
    """Both paths over one prompt and some windows: the widest distance of logits, the tokens."""
    import numpy as np

    both = [_lanes(folder, kernels, world) for kernels in (True, False)]
    ids = _ids(both[0].executor, rows)
    tokens = [[lanes.prompt(0, ids)] for lanes in both]
    for _ in range(windows):
        for lanes, mine in zip(both, tokens, strict=True):
            mine.append(lanes.window({0: mine[-1]})[0])
    ours, theirs = (lanes.stacked(0) for lanes in both)
    return {"distance": float(np.abs(ours - theirs).max()), "tokens": tokens}


def windows(folder: Path, count: int, world: int = 1) -> dict[str, Any]:
    """Windows alone, of two lanes from their first token on: the widest distance of logits."""
    import numpy as np

    from streamglm.step import Step

    both = [_lanes(folder, kernels, world) for kernels in (True, False)]
    for lanes in both:
        lanes.run(Step(begins=(lanes.begin(0, 60), lanes.begin(2, 60))))
        for at in range(count):
            lanes.window({0: 5 + at, 2: 9 + at})
    ours, theirs = ([lanes.stacked(lane) for lane in (0, 2)] for lanes in both)
    return {"distance": float(np.abs(np.stack(ours) - np.stack(theirs)).max())}


def company(folder: Path, rows: int, cut: int, world: int = 1, half: int = 0) -> dict[str, Any]:
    """A prompt and windows alone, in two chunks, and beside another lane: hashes of all bits."""
    from streamglm.step import Step
    from support.lanes import GREEDY, chunks

    lanes = _lanes(folder, True, world, half=bool(half))
    ids = _ids(lanes.executor, rows)
    found = {}
    token = lanes.prompt(0, ids)
    lanes.window({0: token})
    found["alone"] = _bits(lanes, 0)
    lanes.end(0)
    token = lanes.prompt(1, ids, (cut,))
    lanes.window({1: token})
    found["in chunks"] = _bits(lanes, 1)
    lanes.end(1)
    begins = (lanes.begin(2, rows + 80, GREEDY), lanes.begin(0, rows + 80, GREEDY))
    parts = (*chunks(2, ids[:9], ()), *chunks(0, ids, ()))
    drawn = lanes.run(Step(begins=begins, chunks=parts))
    lanes.window({2: drawn[2], 0: drawn[0]})
    found["beside another"] = _bits(lanes, 0)
    return found


def verified(folder: Path, rows: int, world: int = 1) -> dict[str, Any]:
    """Windows of one row; then drafts of which two come true, beside a lane without any: the
    tokens, and hashes of the logits and of the lane's state behind them."""
    from streamglm.step import Row, Step

    found: dict[str, Any] = {}
    lanes = _lanes(folder, True, world)
    ids = _ids(lanes.executor, rows)
    serial = [lanes.prompt(0, ids)]
    other = lanes.prompt(1, ids[:5])
    for _ in range(5):
        drawn = lanes.window({0: serial[-1], 1: other})
        serial.append(drawn[0])
    found["serial"] = {"tokens": serial[:5], "bits": _bits(lanes, 0), "beside": _bits(lanes, 1)}
    lanes = _lanes(folder, True, world)
    first = lanes.prompt(0, ids)
    lanes.prompt(1, ids[:5])
    wrong = (serial[3] + 1) % lanes.executor.spec.vocab_size
    drafts = (serial[1], serial[2], wrong, 7)
    step = Step(rows=(Row(0, rows, first, drafts), Row(1, 5, other)))
    result, tap = lanes.executor.logits(step)
    lanes.took(tap, {drawn.lane: len(drawn.tokens) for drawn in result.drawn})
    tokens = [first, *result.drawn[0].tokens]
    for _ in range(2):
        tokens.append(lanes.window({0: tokens[-1], 1: other})[0])
    for _ in range(2):
        lanes.window({1: other})
    found["drafted"] = {"tokens": tokens[:5], "bits": _bits(lanes, 0), "beside": _bits(lanes, 1)}
    return found


def drafted(folder: Path, rows: int, world: int = 1) -> dict[str, Any]:
    """Drafts of the next-token layer behind a prompt and behind a verify window, on both paths."""
    from streamglm.step import Begin, Chunk, Draw, Row, Step

    found = []
    for kernels in (True, False):
        engine = _lanes(folder, kernels, world).executor
        ids = _ids(engine, rows)
        pages = tuple(range(-(-(rows + 40) // engine.spec.rows.page)))
        draw = Draw(temperature=0.9, top_k=20, top_p=0.9, min_p=0.01, seed=2**63 + 5)
        begin = Begin(0, pages, draw, drafts=True)
        chunk = Chunk(0, 0, tuple(ids), last=True, ahead=3)
        told = []
        drawn = engine.run(Step(begins=(begin,), chunks=(chunk,))).drawn[0]
        at = rows
        for ahead in (2, 0, 3, 2):
            told.append([*drawn.tokens, -2, *drawn.drafts])
            row = Row(0, at, drawn.tokens[-1], drawn.drafts, ahead)
            drawn = engine.run(Step(rows=(row,))).drawn[0]
            at += len(drawn.tokens)
        found.append([*told, list(drawn.tokens)])
    return {"kernels": found[0], "host": found[1]}


def resumed(folder: Path, rows: int, world: int = 1) -> dict[str, Any]:
    """A lane on from a kept state, in a slot and in a buffer: hashes of the logits from there."""
    from streamglm.step import Begin, Chunk, Demote, Restore, Save, Step
    from support.lanes import GREEDY

    engine = _lanes(folder, True, world).executor
    page, ids = engine.spec.rows.page, _ids(engine, rows)
    assert page < rows < 2 * page
    head, tail = tuple(ids[:page]), tuple(ids[page:])
    found = {}

    def rest(lane: int, **step: Any) -> str:
        chunk = Chunk(lane, page, tail, last=True)
        _, tap = engine.logits(Step(chunks=(chunk,), **step))
        return _hash([tap[lane, at] for at in range(page, rows)])

    begin = Begin(0, (3, 5), GREEDY)
    saves = (Save(1, 0, 0, False, page), Save(2, 0, -1, False, page))
    engine.run(Step(begins=(begin,), chunks=(Chunk(0, 0, head, last=False),), saves=saves))
    found["fresh"] = rest(0)
    shared = Begin(1, (3, 6), GREEDY, Restore(1, 0, page))
    found["slot"] = rest(1, begins=(shared,))
    copied = Begin(2, (8, 7), GREEDY, Restore(2, -1, page))
    found["buffer"] = rest(2, ends=(0,), begins=(copied,))
    moves = (Demote(1, 0, page, (3,)),)
    demoted = Begin(0, (9, 10), GREEDY, Restore(1, -1, page))
    found["host"] = rest(0, ends=(1,), moves=moves, begins=(demoted,))
    return found


SCENES = {one.__name__: one for one in (compared, windows, company, verified, drafted, resumed)}


def _lanes(folder: Path, kernels: bool, world: int = 1, *, half: bool = False) -> Any:
    """`half`: activations are bfloat16, as on a GPU."""
    import torch

    from streamglm.model.executor import Executor
    from streamglm.model.spec import ModelSpec
    from streamglm.pool.memory import HOST, Memory
    from streamglm.sampling.lane import LaneSampler
    from streamglm.weights import checkpoint, packed
    from support.lanes import Lanes
    from support.ranked import Ranked

    spec = ModelSpec.from_folder(folder)
    cpu = torch.device("cpu")
    values = torch.bfloat16 if half else torch.float32
    memory = Memory(cpu, values, kernels=True) if kernels else HOST
    sizes: Any = {"pages": 16, "lanes": 3, "slots": 2, "drafts": bool(spec.mtp_layers)}
    if world > 1:
        return Lanes(Ranked(folder, world, memory=memory, **sizes))
    params: Any = (
        packed.read(folder, spec, cpu).params if kernels else checkpoint.load(folder, spec).params
    )
    return Lanes(Executor(spec, params, sampler=LaneSampler, poison=True, memory=memory, **sizes))


def _ids(executor: Any, rows: int) -> list[int]:
    import numpy as np

    ids = np.random.default_rng(0).integers(2, executor.spec.vocab_size, rows)
    return [int(one) for one in ids]


def _bits(lanes: Any, lane: int) -> str:
    """Of all logits of a lane so far and of the state that it carries."""
    return _hash([lanes.stacked(lane), *lanes.state(lane)[:2]])


def _hash(arrays: Sequence[Any]) -> str:
    digest = hashlib.sha256()
    for one in arrays:
        digest.update(one.tobytes())
    return digest.hexdigest()


def told(what: str, folder: str, sizes: dict[str, int]) -> dict[str, Any]:
    """What a scene found, or how it crashed."""
    whole = sizes.pop("kernels", 0)
    try:
        with interpreted() if whole else contextlib.nullcontext():
            return {"told": SCENES[what](Path(folder), **sizes)}
    except Exception:
        return {"crashed": traceback.format_exc()}


if __name__ == "__main__":
    answer(told)
