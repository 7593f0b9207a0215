"""What `bench decode` compares: three ways of turning prompts into greedy tokens.

Owns how each is driven: transformers' `generate`, our executor in this process, and our server
over HTTP. Every run is greedy and ignores end tokens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.generation.streamers import BaseStreamer

from bench.client import Address, Reply, exchange, read
from bench.record import Void
from bench.timed import Prompt, Timed, token_sha
from streamglm.model.executor import Executor
from streamglm.model.spec import ModelSpec
from streamglm.sampling.lane import LaneSampler
from streamglm.step import Begin, Chunk, Draw, Row, Step
from streamglm.weights.checkpoint import load

GREEDY = Draw(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0)


class Transformers:
    """`generate` of transformers on the same checkpoint, in float32."""

    def __init__(self, folder: Path, threads: int) -> None:
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        self.name = "transformers"
        self.threads = threads
        self._model = transformers.Glm5NextForConditionalGeneration.from_pretrained(
            folder, dtype=torch.float32
        ).eval()
        # On the model, because a None in the config of one call is filled from the model's.
        self._model.generation_config = transformers.GenerationConfig(
            do_sample=False, eos_token_id=None, pad_token_id=0
        )

    def generate(self, prompts: Sequence[Prompt], new: int) -> Timed:
        torch.set_num_threads(self.threads)
        ids = torch.tensor(prompts)  # [streams, prompt]
        stamps = _Stamps()
        start = time.perf_counter()
        with torch.inference_mode():
            out = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=new,
                streamer=stamps,
            )
        seconds = time.perf_counter() - start
        if out.shape[1] != ids.shape[1] + new:
            raise Void(f"transformers made {out.shape[1] - ids.shape[1]} tokens, not {new}")
        hashes = tuple(token_sha(row.tolist()) for row in out[:, ids.shape[1] :])
        return Timed(hashes, stamps.times[1] - start, seconds)


class _Stamps(BaseStreamer):  # type: ignore[misc]  # transformers ships no types
    """Notes when the prompt, then each token, was put."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: object) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Nothing is held back."""


class InProcess:
    """Our executor driven by steps, without server, frames or HTTP."""

    def __init__(self, folder: Path, *, threads: int, lanes: int, tokens: int) -> None:
        self.name = "engine"
        self.threads = threads
        spec = ModelSpec.from_folder(folder)
        loaded = load(folder, spec)
        self._spec = spec if loaded.mtp else replace(spec, mtp_layers=0)
        self._lane_pages = -(-tokens // spec.rows.page)
        torch.set_num_threads(threads)
        self._executor = Executor(
            self._spec,
            loaded.params,
            pages=lanes * self._lane_pages,
            lanes=lanes,
            sampler=LaneSampler,
        )

    def generate(self, prompts: Sequence[Prompt], new: int) -> Timed:
        torch.set_num_threads(self.threads)
        tokens: list[list[int]] = [[] for _ in prompts]
        start = time.perf_counter()
        for step in self._prompt_steps(prompts):
            for drawn in self._executor.run(step).drawn:
                tokens[drawn.lane].extend(drawn.tokens)
        first = time.perf_counter() - start
        for done in range(new - 1):
            rows = tuple(
                Row(lane, len(prompt) + done, tokens[lane][-1])
                for lane, prompt in enumerate(prompts)
            )
            for drawn in self._executor.run(Step(rows=rows)).drawn:
                tokens[drawn.lane].extend(drawn.tokens)
        seconds = time.perf_counter() - start
        self._executor.run(Step(ends=tuple(range(len(prompts)))))
        return Timed(tuple(map(token_sha, tokens)), first, seconds)

    def _prompt_steps(self, prompts: Sequence[Prompt]) -> Iterator[Step]:
        """One chunk a step, lane after lane; a lane begins with its first chunk."""
        size = self._spec.rows.chunk
        for lane, prompt in enumerate(prompts):
            pages = range(lane * self._lane_pages, (lane + 1) * self._lane_pages)
            begin = Begin(lane, tuple(pages), GREEDY)
            for at in range(0, len(prompt), size):
                piece = prompt[at : at + size]
                chunk = Chunk(lane, at, piece, last=at + size >= len(prompt))
                yield Step(begins=() if at else (begin,), chunks=(chunk,))


class OverHTTP:
    """Our server, streamed: one connection a prompt."""

    def __init__(self, url: str, threads: int) -> None:
        self.name = "over HTTP"
        self.threads = threads
        self._address = Address.of(url)

    def generate(self, prompts: Sequence[Prompt], new: int) -> Timed:
        start = time.monotonic()
        replies = asyncio.run(self._all(prompts, new))
        return Timed(
            hashes=tuple(reply.token_sha for reply in replies),
            first_seconds=max(reply.times[0] for reply in replies) - start,
            seconds=max(reply.times[-1] for reply in replies) - start,
        )

    async def _all(self, prompts: Sequence[Prompt], new: int) -> list[Reply]:
        async with asyncio.TaskGroup() as tasks:
            sent = [tasks.create_task(self._one(prompt, new)) for prompt in prompts]
        return [read(task.result()) for task in sent]

    async def _one(self, prompt: Prompt, new: int) -> Any:
        body = {
            "prompt": list(prompt),
            "max_tokens": new,
            "temperature": 0.0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return await exchange(self._address, "/v1/completions", body)
