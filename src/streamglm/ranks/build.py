"""How a rank makes its executor: a checkpoint folder in, weights and caches in memory out.

A rank's process imports it by name. Owns the order of a load: ranks meet before they read, so
that one that cannot be reached is known at once. Knows no sockets: it is told whom to tell. Raises
`CheckpointError` and `SettingError` as the loader does, and `PeerLost`; the rank passes their one
line on.
"""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import msgspec
import numpy as np
import torch

from streamglm.errors import SettingError
from streamglm.model.executor import Executor
from streamglm.model.shapes import RANDOM, random_spec
from streamglm.model.spec import ModelSpec
from streamglm.model.state import FixedParts
from streamglm.pool.layout import RowFormat
from streamglm.pool.memory import HOST, Memory
from streamglm.ranks.meeting import meet
from streamglm.ranks.wire import Hello, RankSettings, Report, SpecNumbers
from streamglm.ranks.worker import Told
from streamglm.sampling.guided import Follows, GuidedSamplers
from streamglm.sampling.vocabulary import Vocabulary
from streamglm.text.tokenizer import Tokenizer
from streamglm.weights import packed, random
from streamglm.weights.checkpoint import Loaded, load
from streamglm.weights.packed import Held, total_bytes

WARM_BYTES = 1 << 30
"""Of weights: their load takes so long that the grammar library is loaded beside them. A small
model starts without it, and the first reply that has a grammar waits for it."""


def build(hello: Hello, told: Told) -> tuple[Executor, Report]:
    """Load what `hello.rank` of `hello.world` holds, and allocate its caches."""
    settings = hello.settings
    memory = _memory(hello)
    torch.set_num_threads(settings.threads)
    peers = meet(hello, told, device=str(memory.device))
    spec, loaded = _weights(hello, memory, told)
    weight_bytes = total_bytes(loaded.params.values())
    samplers = _samplers(settings)
    if weight_bytes >= WARM_BYTES and settings.spelled_ids and find_spec("xgrammar"):
        samplers.warm(tuple(sorted(spec.eos_ids)))
    told.phase("self-check")
    executor = Executor(
        spec if loaded.mtp else dataclasses.replace(spec, mtp_layers=0),
        loaded.params,
        pages=settings.pages,
        lanes=settings.lanes,
        slots=settings.slots,
        rows=RowFormat(settings.rows),
        drafts=settings.drafts,
        poison=settings.kv_poison,
        sampler=samplers,
        records=told.records,
        peers=peers,
        kv_split=settings.kv_split,
        memory=memory,
        graphs=settings.graphs,
        log=told.note,
    )
    if memory.on_gpu:
        from streamglm.model.device import ahead  # Triton's, which a machine without a GPU may lack

        ahead.prepare(executor, told.note, told.phase)
    on_host = dataclasses.replace(memory, device=HOST.device)
    told.records.shape(
        executor.pool.sections,
        FixedParts(executor.pool.shape, 1, memory=on_host).sections,
        split=settings.kv_split,
    )
    report = _report(spec, loaded, executor, weight_bytes, settings.drafts)
    return executor, msgspec.structs.replace(
        report, layout=told.records.layout, numerics=_numerics(executor, settings.threads)
    )


def _weights(hello: Hello, memory: Memory, told: Told) -> tuple[ModelSpec, Loaded | Held]:
    """Of a checkpoint, or random ones."""
    settings, device = hello.settings, memory.device
    rank, world, tell = hello.rank, hello.world, told.loading
    if settings.model.startswith(RANDOM):
        spec, experts = random_spec(settings.model, settings.layers), settings.expert_format
        if memory.kernels:
            return spec, random.held(spec, device, experts, rank=rank, world=world)
        return spec, random.loaded(spec, experts, rank=rank, world=world)
    folder = Path(settings.model)
    spec = ModelSpec.from_folder(folder)
    if memory.kernels:
        return spec, packed.read(folder, spec, device, rank=rank, world=world, progress=tell)
    return spec, load(folder, spec, rank=rank, world=world, progress=tell)


def _memory(hello: Hello) -> Memory:
    """Where this rank computes. On a GPU activations are bfloat16, beside float32 pages float32."""
    settings = hello.settings
    if settings.device == "cpu":
        return HOST
    if not torch.cuda.is_available():
        raise SettingError(f"device is {settings.device!r}, and torch finds no GPU in this process")
    if hello.gpu >= torch.cuda.device_count():
        raise SettingError(
            f"--ranks is {hello.world}: rank {hello.rank} takes GPU {hello.gpu} of its host, and "
            f"torch finds {torch.cuda.device_count()} in this process; each rank needs its own"
        )
    torch.cuda.set_device(hello.gpu)
    wide = RowFormat(settings.rows) is RowFormat.FP32
    device = torch.device("cuda", torch.cuda.current_device())
    return Memory(device, torch.float32 if wide else torch.bfloat16, kernels=True)


def _numerics(executor: Executor, threads: int) -> str:
    """What a row's bits may depend on beside weights and tokens. A state that was computed under
    other numerics is exact where it was computed, and perhaps not here."""
    parts = {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "processor": _processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": threads,
        "passes": executor.numerics,
    }
    return ", ".join(f"{name} {value}" for name, value in parts.items())


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _samplers(settings: RankSettings) -> GuidedSamplers:
    """What lanes draw with; a reply that is guided needs what the tokens say."""

    def vocabulary(stops: tuple[int, ...]) -> Vocabulary:
        tokenizer = Tokenizer.from_folder(Path(settings.model))
        assert tokenizer is not None, "a guided reply of a checkpoint without a tokenizer"
        return Vocabulary.of(tokenizer.said, settings.spec.vocab_size, stops)

    return GuidedSamplers(spelled=settings.spelled_ids, vocabulary=vocabulary, grammars=_grammars)


def _grammars(vocabulary: Vocabulary) -> Callable[[bytes], Follows]:
    from streamglm.sampling.grammar import Grammars  # an extra: there when a grammar is

    return Grammars(vocabulary).matcher


def _report(
    spec: ModelSpec, loaded: Loaded | Held, executor: Executor, weight_bytes: int, drafts: bool
) -> Report:
    return Report(
        weight_bytes=weight_bytes,
        pool_bytes=executor.bytes.pool,
        lane_bytes=executor.bytes.lanes,
        slot_bytes=executor.bytes.slots,
        mtp=loaded.mtp,
        skipped_vision=loaded.skipped_vision,
        exact_tiles=executor.exact_tiles,
        fingerprint=loaded.fingerprint,
        spec=SpecNumbers(
            page_rows=spec.rows.page,
            chunk_rows=spec.rows.chunk,
            kda_chunk=spec.rows.kda_chunk,
            window_rows=spec.rows.window,
            vocab_size=spec.vocab_size,
            layers=len(spec.layers),
            verify_rows=spec.rows.verify if drafts else 1,
        ),
    )
