"""An executor without a model: tokens are a function of prompt, seed and position.

It runs in a real rank process, found by its dotted name, and inside `FakeRanks`. Like a real
executor it has pages and slots (`memory.py`), which it reads before every chunk and row: it breaks
when a row does not follow from what it was sent, or was never written. Some
seeds make a rank misbehave, and `model` of the settings tells how a start goes.
"""

from __future__ import annotations

import os
import time
from array import array
from dataclasses import dataclass
from typing import Protocol
from zlib import crc32

import msgspec

from streamglm.errors import CheckpointError
from streamglm.ranks.wire import Hello, Report
from streamglm.ranks.worker import Executes, Told
from streamglm.step import Draw, Drawn, LogProbs, Put, Record, Row, Step, StepResult
from support.memory import Held, Memory

NO_TOKEN = 9001  # draws -1, as a model does whose logits are not finite
RAISES = 9002
EXITS = 9003
HANGS = 9004
SLOW = 9005  # a step of 50 ms


def token_at(prompt_hash: int, seed: int, position: int, vocab: int) -> int:
    """The token that stands at `position` of a reply."""
    return crc32(array("q", (prompt_hash, seed % 2**63, position)).tobytes()) % vocab


def logprobs_at(token: int, position: int, count: int) -> LogProbs:
    """What is told beside the token that stands at `position`."""
    top = tuple((token + i, -0.5 * i - position) for i in range(count))
    return LogProbs(-0.25 * position, top)


def hash_of(tokens: tuple[int, ...], before: int = 0) -> int:
    """Hash of a prompt, in any pieces."""
    return crc32(array("q", tokens).tobytes(), before)


def expected(prompt: tuple[int, ...], seed: int, count: int, vocab: int) -> tuple[int, ...]:
    """The first `count` tokens of a reply."""
    start = len(prompt)
    return tuple(token_at(hash_of(prompt), seed, start + i, vocab) for i in range(count))


class Shelf(Protocol):
    """A disk as a stub rank sees it."""

    def stage(self, record: Record, rows: array[int]) -> None: ...

    def take(self, job: int, count: int) -> list[array[int]]: ...


@dataclass(slots=True)
class _Lane:
    draw: Draw
    held: Held
    prompt_hash: int = 0
    token: int = -1


class StubExecutor:
    """Draws by `token_at`; checks that each row carries the token that was drawn. `disk` is what
    its writes go to and its puts come from."""

    def __init__(
        self, vocab: int, page_rows: int, offset: int = 0, disk: Shelf | None = None
    ) -> None:
        self.disk = disk
        self.memory = Memory(page_rows)
        self._vocab = vocab
        self._offset = offset
        self._lanes: dict[int, _Lane] = {}

    def run(self, step: Step) -> StepResult:
        for lane in step.ends:
            del self._lanes[lane]
        for move in step.moves:
            self.memory.move(move)
        carried = {carry.lane for carry in step.carries}
        for begin in step.begins:
            lane = begin.lane
            assert lane not in self._lanes, "a lane is begun over another"
            held = self.memory.begin(lane, begin.pages, begin.restore, carried=lane in carried)
            self._lanes[lane] = _Lane(begin.draw, held)
        for carry in step.carries:
            self.memory.carry(carry, self._lanes[carry.lane].held)
        for put in step.puts:
            self._put(put)
        prompt_seconds = self._timed(step, [chunk.lane for chunk in step.chunks])
        drawn = [self._draw(lane, stop) for lane, stop in self._prompt(step)]
        for save in step.saves:
            self.memory.save(save, self._lanes[save.lane].held)
        for write in step.writes:
            assert self.disk is not None, "a step writes, and there is no disk"
            for record in write.records:
                self.disk.stage(record, self.memory.copy(write, record))
        window_seconds = self._timed(step, [row.lane for row in step.rows])
        for row in step.rows:
            assert self._lanes[row.lane].token == row.token, "a row carries another token"
            drawn.append(self._verify(row))
        asked = {chunk.lane: chunk.ahead for chunk in step.chunks}
        asked |= {row.lane: row.ahead for row in step.rows}
        behind = tuple(self._behind(one, asked[one.lane]) for one in drawn)
        return StepResult(behind, prompt_seconds, window_seconds)

    def _verify(self, row: Row) -> Drawn:
        """Rows one by one, to the first whose token is not the draft behind it."""
        found = Drawn(row.lane, ())
        for place, token in enumerate(row.tokens):
            self._compute(row.lane, row.position + place, (token,))
            one = self._draw(row.lane, row.position + place + 1)
            found = Drawn(row.lane, found.tokens + one.tokens, found.logprobs + one.logprobs)
            if one.tokens != row.drafts[place : place + 1]:
                break
        return found

    def _behind(self, drawn: Drawn, ahead: int) -> Drawn:
        """Drafts of which the first few are right: a place's own number of them."""
        lane = self._lanes[drawn.lane]
        start = len(lane.held.rows) + 1
        right = start * 7 % (ahead + 2)
        tokens = (
            token_at(lane.prompt_hash, lane.draw.seed, start + i, self._vocab) for i in range(ahead)
        )
        drafts = ((token + (i >= right)) % self._vocab for i, token in enumerate(tokens))
        return msgspec.structs.replace(drawn, drafts=tuple(drafts))

    def _put(self, put: Put) -> None:
        assert self.disk is not None, "a step puts, and there is no disk"
        held = self._lanes[put.lane].held
        self.memory.put(put.lane, held, put.first, self.disk.take(put.job, put.stop - put.first))
        if put.seal:
            (rows,) = self.disk.take(put.job, 1)
            self.memory.seal(put.lane, held, rows)

    def _prompt(self, step: Step) -> list[tuple[int, int]]:
        """The lanes whose prompts are complete, and where they stand."""
        complete = []
        for chunk in step.chunks:
            self._compute(chunk.lane, chunk.start, chunk.tokens)
            if chunk.last:
                lane = self._lanes[chunk.lane]
                lane.prompt_hash = lane.held.hash
                complete.append((chunk.lane, chunk.start + len(chunk.tokens)))
        return complete

    def _compute(self, lane: int, start: int, tokens: tuple[int, ...]) -> None:
        held = self._lanes[lane].held
        assert start == len(held.rows), f"lane {lane} goes on at {start}, after {len(held.rows)}"
        self.memory.read(lane, held)
        self.memory.write(held, tokens)

    def _draw(self, lane: int, position: int) -> Drawn:
        held = self._lanes[lane]
        seed, wanted = held.draw.seed, held.draw.logprobs
        if seed == NO_TOKEN:
            return Drawn(lane, (-1,))
        held.token = token_at(held.prompt_hash, seed, position, self._vocab)
        logprobs = () if wanted is None else (logprobs_at(held.token, position, wanted),)
        return Drawn(lane, (held.token + self._offset,), logprobs)

    def _timed(self, step: Step, lanes: list[int]) -> float:
        start = time.monotonic()
        for seed in [self._lanes[lane].draw.seed for lane in lanes]:
            if seed == RAISES:
                raise RuntimeError("the stub was asked to fail")
            if seed == EXITS:
                os._exit(3)
            if seed == HANGS:
                os.write(1, b"hangs\n")  # the server's stdout: a test can wait for it
                time.sleep(600)
            if seed == SLOW:
                time.sleep(0.05)
        return time.monotonic() - start


def build(hello: Hello, told: Told) -> tuple[Executes, Report]:
    """What a rank under test runs; `settings.model` picks how the start goes."""
    match hello.settings.model:
        case "hole":
            raise CheckpointError("model-00002-of-00003.safetensors: missing")
        case "broken":
            raise RuntimeError("no memory left")
        case "exits":
            os._exit(7)
        case "silent":
            time.sleep(600)
    told.loading(0, 1000)
    told.loading(1000, 1000)
    told.note("a line for the log")
    told.phase("self-check")
    spec = hello.settings.spec
    if hello.settings.model == "differs":
        spec = msgspec.structs.replace(spec, chunk_rows=spec.chunk_rows + hello.rank)
    report = Report(
        weight_bytes=1000,
        pool_bytes=hello.settings.pages * 100,
        lane_bytes=hello.settings.lanes * 10,
        slot_bytes=hello.settings.slots,
        mtp=False,
        skipped_vision=0,
        exact_tiles=True,
        fingerprint=f"of rank {hello.rank}",
        numerics=f"on GPU {hello.gpu}",
        spec=spec,
    )
    offset = hello.rank if hello.settings.model == "liar" else 0
    return StubExecutor(spec.vocab_size, spec.page_rows, offset), report
