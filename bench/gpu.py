"""Our executor with random weights on a GPU, and what that GPU can do: shared by decode and prompt.

Owns the model that is measured, lanes of any length without their prompts, and the ceilings.
Knows no tables. The pages before those where a lane writes are random, so a long context costs no
prompt. Lanes of up to `OWN` tokens have pages of their own; longer ones share some, in an order of
their own. Their number of bytes is what every lane reads; that lanes share them in a cache flatters
wide windows of long contexts a little, and the receipt says so.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F

from bench.record import Void
from streamglm.kernels import experts, linear
from streamglm.kernels.matrix import Format, Matrix
from streamglm.model.device import ahead
from streamglm.model.device.passes import WIDTHS, DevicePasses
from streamglm.model.executor import Executor
from streamglm.model.shapes import GLM_5_3_FLASH, glm_5_3_flash
from streamglm.model.spec import ModelSpec
from streamglm.pool.layout import RowFormat
from streamglm.pool.memory import Memory
from streamglm.sampling.lane import LaneSampler
from streamglm.step import Begin, Draw, Row, Step
from streamglm.weights import random

GREEDY = Draw(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0)
OWN = 8192
"""Tokens of a lane that no lane shares."""
_FILLED = 256
"""Pages that are filled at once."""


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def spec_of(model: str, layers: int | None, mtp: bool = False) -> ModelSpec:
    """The real shapes, cut to `layers`. Raises `Void` for another model or without a GPU."""
    if model != GLM_5_3_FLASH:
        raise Void(f"--model is {model}; on a GPU {GLM_5_3_FLASH} is measured")
    if not torch.cuda.is_available():
        raise Void("torch finds no GPU here")
    spec = glm_5_3_flash(layers)
    return spec if mtp else replace(spec, mtp_layers=0)


class Model:
    """The executor, and lanes that stand wherever they are put."""

    def __init__(
        self,
        spec: ModelSpec,
        expert_format: str,
        *,
        context: int,
        lanes: int = WIDTHS[-1],
        rows: RowFormat = RowFormat.BF16,
        drafts: bool = True,
    ) -> None:
        device = torch.device("cuda", torch.cuda.current_device())
        self.spec, self.lanes = spec, lanes
        page = spec.rows.page
        self._shared = max(-(-context // page), lanes * (min(context, OWN) // page))
        self.executor = Executor(
            spec,
            random.params(spec, device, random.FORMATS[expert_format]),
            pages=self._shared + 2 * lanes,
            lanes=lanes,
            rows=rows,
            sampler=LaneSampler,
            drafts=drafts,
            memory=Memory(device, torch.bfloat16, kernels=True),
        )
        ahead.prepare(self.executor, _say, lambda phase: None)
        self._fill()
        self._began: set[int] = set()

    @property
    def passes(self) -> DevicePasses:
        found = self.executor.passes
        assert isinstance(found, DevicePasses)
        return found

    def _fill(self) -> None:
        """Random rows in every page but the null page."""
        null = self.executor.pool.null
        for pages in (*self.executor.caches.latents, *self.executor.caches.keys):
            for first in range(0, null, _FILLED):
                part = pages.values[first : min(first + _FILLED, null)]
                part.copy_(torch.randn(part.shape, device=part.device))

    def stand(self, lanes: int, tokens: int) -> None:
        """Lanes 0 to `lanes` - 1 stand at `tokens`, over random pages and two that they write."""
        count = tokens // self.spec.rows.page
        begins = []
        for lane in range(lanes):
            before = tuple((lane * count + at) % self._shared for at in range(count))
            own = (self._shared + 2 * lane, self._shared + 2 * lane + 1)
            begins.append(Begin(lane, before + own, GREEDY))
        ends = tuple(sorted(self._began))
        self.executor.run(Step(ends=ends, begins=tuple(begins)))
        self._began = set(range(lanes))
        states = self.executor.states
        generator = torch.Generator(device=states.kda.device).manual_seed(1)
        states.kda.normal_(0.0, 0.1, generator=generator)
        states.conv.normal_(0.0, 1.0, generator=generator)
        states.tails.zero_()

    def step(self, lanes: int, at: int, tokens: Sequence[int]) -> list[int]:
        """One row of each lane; the tokens drawn."""
        rows = tuple(Row(lane, at, tokens[lane]) for lane in range(lanes))
        return [drawn.tokens[0] for drawn in self.executor.run(Step(rows=rows)).drawn]

    def matrices(self) -> tuple[int, list[Matrix]]:
        """Bytes that a window reads of every matrix, and the stacks of experts."""
        trunk = self.passes.trunk
        stacks: list[Matrix] = []
        for layer in trunk.layers:
            held: Any = layer.feed.mlp
            if hasattr(held, "stacks"):
                stacks += [held.stacks.gate_up, held.stacks.down]
        return sum(one.bytes for one in trunk.matrices()), stacks


def floor_bytes(model: Model, rows: int, context: int, chosen: Sequence[int]) -> float:
    """The fewest bytes of a window of `rows` lanes at `context`: matrices once, of each layer as
    many experts as were `chosen`, states read and written, keys scored, latents attended."""
    spec = model.spec
    fixed, stacks = model.matrices()
    per_layer = len(stacks) // max(len(chosen), 1)
    counts = [count for count in chosen for _ in range(per_layer)]
    routed = sum(count * one.bytes / one.count for count, one in zip(counts, stacks, strict=True))
    shape = model.executor.pool.shape
    lane = 2 * shape.kda_state_bytes + 2 * shape.conv_bytes
    caches = len(spec.dsa_layers)
    latents = min(context, spec.dense_limit) * caches * shape.rows.latent_bytes(spec.kv_lora_rank)
    scored = 0 if context <= spec.dense_limit else context // spec.pool
    keys = scored * caches * spec.index_dim * shape.rows.key_itemsize
    return fixed + routed + rows * (lane + latents + keys)


def expected(spec: ModelSpec, rows: int) -> float:
    """Distinct experts of a layer, were each row's a draw of its own."""
    share = spec.num_experts_per_tok / spec.n_routed_experts
    return spec.n_routed_experts * (1.0 - (1.0 - share) ** rows)


@contextlib.contextmanager
def choices(rows: int) -> Iterator[list[int]]:
    """Of every layer that an eager window of `rows` rows goes through: how many experts those rows
    choose, each counted once."""
    found: list[int] = []
    own = experts.choose

    def choose(*arguments: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
        chosen, shares = own(*arguments, **options)
        found.append(len(set(chosen[:rows].flatten().tolist())))
        return chosen, shares

    with mock.patch.object(experts, "choose", choose):
        yield found


def ceilings() -> dict[str, float]:
    """Bytes a second of a copy, FLOPs a second of a bf16 product, seconds of one graph node."""
    source = torch.randint(0, 255, (1 << 31,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copy = 2 * source.numel() / timed(partial(target.copy_, source), 10)
    del source, target
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = 2 * 8192**3 / timed(lambda: a @ b, 10)
    tiny = torch.zeros(32, device="cuda")
    graph, count = torch.cuda.CUDAGraph(), 200
    tiny.add_(1.0)
    with torch.cuda.graph(graph):
        for _ in range(count):
            tiny.add_(1.0)
    node = timed(graph.replay, 20) / count
    return {"copy_bytes_per_second": copy, "bf16_flops": product, "node_seconds": node}


def timed(run: Callable[[], object], runs: int) -> float:
    """Median seconds of one call, by events, after two that do not count."""
    for _ in range(2):
        run()
    seconds: list[float] = []
    for _ in range(runs):
        start, end = _event(), _event()
        start.record()
        run()
        end.record()
        end.synchronize()
        seconds.append(start.elapsed_time(end) / 1e3)
    return median(seconds)


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def launches(run: Callable[[], object]) -> tuple[int, list[tuple[str, int, float]]]:
    """Kernels that a call launches, and the dearest of them: (name, count, microseconds)."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        run()
        torch.cuda.synchronize()
    device = [one for one in seen.key_averages() if one.device_type.name == "CUDA"]
    total = sum(one.count for one in device)
    dearest = sorted(device, key=lambda one: -one.self_device_time_total)[:25]
    return total, [(one.key[:60], one.count, one.self_device_time_total) for one in dearest]


@contextlib.contextmanager
def library_products() -> Iterator[None]:
    """Plain linear layers by the vendor's library, whose rows are not their own: the tax of
    exactness is the distance to it. Gate and up of MLPs and the experts stay as they are."""

    def product(own: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def call(x: torch.Tensor, one: Matrix, dtype: torch.dtype | None = None) -> torch.Tensor:
            if one.format is not Format.PLAIN or x.dtype != one.numbers.dtype:
                return own(x, one, dtype)
            y = F.linear(x, one.numbers[0])
            return y if dtype is None else y.to(dtype)

        return call

    def by_head(x: torch.Tensor, stack: Matrix, *, wide: bool) -> torch.Tensor:
        return torch.bmm(x.transpose(0, 1), stack.numbers.transpose(1, 2)).transpose(0, 1)

    with (
        mock.patch.object(linear, "window", product(linear.window)),
        mock.patch.object(linear, "prompt", product(linear.prompt)),
        mock.patch.object(linear, "by_head", lambda *a, **k: by_head(*a, **k).contiguous()),
    ):
        yield


def released() -> None:
    """What nobody holds any more goes back to the GPU."""
    gc.collect()
    torch.cuda.empty_cache()
