"""`streamglm serve`: a checkpoint folder becomes a server that answers.

Owns the order of a start: settings, files, sizes, the port, the ranks, the application. Whatever
can be refused is refused before a rank is spawned, and the port is bound first but listens last,
so that nobody can connect to a server that is not ready. Imports no torch.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import math
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import cast

import uvicorn
from starlette.applications import Starlette

from streamglm import config
from streamglm.clock import Clock, SystemClock
from streamglm.commands import logs, rank
from streamglm.commands.checkpoint import Checkpoint, read_checkpoint
from streamglm.commands.elsewhere import came, door_of
from streamglm.commands.hosts import room_of, settled, share_of, threads_of
from streamglm.commands.learned import Library
from streamglm.commands.learning import folder_of, identity_of, refuse, tier_of
from streamglm.commands.planning import beside_exchange, hold_to, planned, row_format, shape_of
from streamglm.commands.progress import StartProgress
from streamglm.config import Settings
from streamglm.core.keeping import PromptCache
from streamglm.core.service import EngineService
from streamglm.core.shape import EngineShape
from streamglm.disk.store import Store
from streamglm.disk.tier import DiskTier
from streamglm.drafts.replies import DraftLimits
from streamglm.edge.app import build_app
from streamglm.edge.served import ServedModel
from streamglm.errors import SettingError
from streamglm.grammars.compiler import Compiler, installed
from streamglm.model.spec import ModelSpec
from streamglm.pool.carve import GIB
from streamglm.pool.plan import Plan
from streamglm.pool.startline import keeps_none, start_line, warnings
from streamglm.ranks.client import RankClient, start_ranks
from streamglm.ranks.door import Door
from streamglm.ranks.group import Limits
from streamglm.ranks.wire import RankSettings, Report, SpecNumbers
from streamglm.text.turns import turn_ids

LEARN_SECONDS = 10.0
"""How long conversations may be written after replies have ended."""

LOST_SECONDS = 60.0
"""How long `/health` says which rank was lost, before the server ends too."""

_log = logging.getLogger("streamglm.serve")


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM. Raises `StartError` before the port opens."""
    settings = settled(config.resolve(vars(arguments)))
    logs.set_up(settings.log_level, settings.log_format)
    checkpoint = read_checkpoint(settings)
    share = share_of(settings)
    if not share.serves:
        return rank.follow(settings, checkpoint)
    room = room_of(checkpoint, share, settings.device)
    if share.local:  # what can be refused at once
        measure(settings, checkpoint, room)
    with bind(settings) as listener, folder_of(settings) as folder:
        with door_of(settings, checkpoint, share, room) as door:
            with asyncio.Runner(loop_factory=_loop()) as runner:
                return runner.run(_serve(settings, checkpoint, room, folder, listener, door))


def measure(settings: Settings, checkpoint: Checkpoint, room: int) -> Plan:
    """The plan of a rank that has `room` bytes. Raises `SettingError`."""
    left = beside_exchange(checkpoint.spec, settings, room)
    plan = planned(checkpoint.spec, _known(settings), left, world=settings.ranks)
    if plan.refused is not None:
        raise SettingError(plan.refused.line)
    refuse(settings, keeps=bool(settings.host_cache_gib) or not keeps_none(plan))
    return plan


def _known(settings: Settings) -> Settings:
    """The settings with the device known: an `auto` that nobody has settled is the CPU."""
    return replace(settings, device="cpu") if settings.device == "auto" else settings


def bind(settings: Settings) -> socket.socket:
    """A bound socket that does not listen yet: a port in use is known before anything loads."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise SettingError(
            f"--host {settings.host} --port {settings.port}: {error.strerror}; --port 0 picks one"
        ) from None
    return listener


def _loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed (Linux)."""
    with contextlib.suppress(ImportError):
        import uvloop

        return cast("Callable[[], asyncio.AbstractEventLoop]", uvloop.new_event_loop)
    return None


async def _serve(
    settings: Settings,
    checkpoint: Checkpoint,
    room: int,
    folder: Store | None,
    listener: socket.socket,
    door: Door | None,
) -> int:
    with StartProgress() as progress:
        others = await came(settings, share_of(settings), door)
        sized = measure(settings, checkpoint, others.least(room))
        ranks = await start_ranks(
            rank_settings(settings, checkpoint, sized),
            world=settings.ranks,
            limits=limits_of(settings),
            progress=progress.heard,
            elsewhere=others.elsewhere,
        )
    tier = None
    try:
        hold_to(sized, ranks.reports)
        _say_what_started(settings, checkpoint, sized, ranks)
        cache = prompt_cache(settings, checkpoint, sized, ranks.reports)
        shape = shape_of(checkpoint.spec, _known(settings), world=settings.ranks)
        if folder is not None:
            tier = tier_of(settings, folder, cache.identity, shape, ranks, SystemClock())
        engine = EngineService(
            engine_shape(checkpoint, sized),
            ranks,
            SystemClock(),
            decode_share=settings.decode_share,
            max_queue=settings.max_queue,
            cache=replace(cache, disk=tier),
            drafts=draft_limits(settings, checkpoint.spec),
        )
        if tier is not None:
            tier.wake = engine.rounds.ring
        await _answer(settings, checkpoint, sized, engine, tier, listener)
        return 0 if engine.failure is None else 1
    finally:
        await ranks.close()
        if tier is not None:
            tier.close()


async def _answer(
    settings: Settings,
    checkpoint: Checkpoint,
    sized: Plan,
    engine: EngineService,
    tier: DiskTier | None,
    listener: socket.socket,
) -> None:
    """HTTP over the engine until a signal."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            writing = None if tier is None else group.create_task(tier.run())
            running = group.create_task(engine.run())
            leaving = group.create_task(leave_lost(running, engine, SystemClock(), leave))
            yield
            await engine.drain(settings.drain_seconds, LEARN_SECONDS)
            leaving.cancel()
            if writing is not None:
                writing.cancel()
            await compiler.close()

    def leave() -> None:
        server.should_exit = True

    model = served_model(settings, checkpoint, sized)
    compiler = Compiler(checkpoint.folder.resolve(), model.vocab_size, sorted(model.eos_ids))
    if installed():
        model = replace(model, grammars=compiler)
    library = (
        None
        if tier is None
        else Library(tier, checkpoint.spec.rows.page, engine.rounds.keeping.kept.clear)
    )
    app = build_app(engine, model, settings, SystemClock(), library=library, lifespan=lifespan)
    server = _Server(
        uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=math.ceil(settings.drain_seconds),
        ),
        settings.host,
        listener,
    )
    await server.serve(sockets=[listener])


async def leave_lost(
    running: asyncio.Task[None], engine: EngineService, clock: Clock, leave: Callable[[], None]
) -> None:
    """When a rank was lost, the server says so for a while and then leaves, so that whoever
    supervises it starts the group anew. `running` is the engine at work; cancelled, this leaves it
    as it is."""
    await asyncio.wait([running])
    if engine.failure is not None:
        await clock.sleep(LOST_SECONDS)
        leave()


class _Server(uvicorn.Server):
    """uvicorn that prints the address once it listens, and leaves the end to `_serve`."""

    def __init__(self, settings: uvicorn.Config, host: str, listener: socket.socket) -> None:
        super().__init__(settings)
        self._address = _url(host, listener.getsockname()[1])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            print(f"listening on {self._address}", flush=True)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End gracefully on SIGINT and SIGTERM, at once on a second one. uvicorn's own would raise
        the signal again afterwards, and end this process before the ranks are closed."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def limits_of(settings: Settings) -> Limits:
    """How long the server waits for ranks."""
    life = settings.rank_silence_seconds
    return Limits(life=life, ping=min(10.0, life), ping_every=min(2.0, life / 3))


def rank_settings(settings: Settings, checkpoint: Checkpoint, sized: Plan) -> RankSettings:
    """What every rank is told."""
    spec = checkpoint.spec
    return RankSettings(
        model=checkpoint.place,
        layers=settings.layers,
        expert_format=settings.expert_format,
        device=_known(settings).device,
        threads=threads_of(settings, len(share_of(settings).local)),
        pages=sized.pages,
        lanes=sized.lanes,
        kv_poison=settings.kv_poison,
        spelled_ids=checkpoint.spelled,
        spec=SpecNumbers(
            page_rows=spec.rows.page,
            chunk_rows=spec.rows.chunk,
            kda_chunk=spec.rows.kda_chunk,
            window_rows=spec.rows.window,
            vocab_size=spec.vocab_size,
            layers=len(spec.layers),
            verify_rows=draft_limits(settings, spec).verify_rows,
        ),
        slots=sized.carved.slots,
        rows=row_format(_known(settings)).value,
        drafts=settings.drafts != 0,
        kv_split=settings.kv_split,
    )


def engine_shape(checkpoint: Checkpoint, sized: Plan) -> EngineShape:
    """The numbers that core decides with."""
    spec = checkpoint.spec
    return EngineShape(
        page_rows=spec.rows.page,
        chunk_rows=spec.rows.chunk,
        kda_chunk=spec.rows.kda_chunk,
        window_rows=spec.rows.window,
        context=sized.context,
        lanes=sized.lanes,
        pages=sized.pages,
        vocab_size=spec.vocab_size,
        slack=sized.sizes.slack if sized.wants.paged else 0,
        paged=sized.wants.paged,
        classes=sized.classes,
        turn_ids=turn_ids(checkpoint.tokenizer, checkpoint.template),
    )


def draft_limits(settings: Settings, spec: ModelSpec) -> DraftLimits:
    """What drafts may take; the spec has a next-token layer if the checkpoint does."""
    return DraftLimits(
        window_rows=spec.rows.window,
        verify_rows=1 if settings.drafts == 0 else spec.rows.verify,
        chain=spec.mtp_layers > 0,
        fixed=settings.drafts,
    )


def prompt_cache(
    settings: Settings, checkpoint: Checkpoint, sized: Plan, reports: list[Report]
) -> PromptCache:
    """Where prompts are kept, by the plan, and whose they are."""
    known, spec = _known(settings), checkpoint.spec
    held = shape_of(spec, known, world=settings.ranks)
    return PromptCache(
        slots=sized.carved.slots,
        budget=0 if sized.wants.sharing else sized.carved.cache,
        host=_host_bytes(settings),
        state_bytes=held.kept_bytes,
        away_bytes=held.away_bytes,
        identity=identity_of(spec, checkpoint.folder, row_format(known), reports),
        wait_seconds=settings.prefix_wait_seconds,
    )


def _host_bytes(settings: Settings) -> int:
    return int(settings.host_cache_gib * GIB)


def served_model(settings: Settings, checkpoint: Checkpoint, sized: Plan) -> ServedModel:
    """What the edge tells of the model."""
    return ServedModel(
        name=settings.model_name
        or (settings.model if settings.model == "nano" else checkpoint.folder.resolve().name),
        context=sized.context,
        vocab_size=checkpoint.spec.vocab_size,
        tokenizer=checkpoint.tokenizer,
        template=checkpoint.template,
        eos_ids=frozenset(checkpoint.spec.eos_ids),
        defaults=checkpoint.defaults,
        created=int(time.time()),
    )


def _say_what_started(
    settings: Settings, checkpoint: Checkpoint, sized: Plan, ranks: RankClient
) -> None:
    """The start-up lines: what was loaded, what was allocated, what is missing."""
    report = ranks.reports[0]
    spec = checkpoint.spec
    _log.info(
        "%s: %d layers, %.1f MiB of weights%s, fingerprint %s",
        checkpoint.folder.name,
        len(spec.layers),
        report.weight_bytes / 2**20,
        " in float32" if _known(settings).device == "cpu" else "",
        report.fingerprint[:16],
    )
    _log.info(start_line(sized, _host_bytes(settings)))
    for line in warnings(sized, _host_bytes(settings)):
        _log.warning(line)
    if report.skipped_vision:
        _log.info("%d vision tensors skipped: text only", report.skipped_vision)
    if settings.drafts != 0 and not spec.mtp_layers:
        _log.warning("the checkpoint holds no next-token layer: drafts come from copies alone")
    if checkpoint.tokenizer is None:
        _log.warning("no tokenizer.json: only prompts of token ids are served, and replies of ids")
    elif checkpoint.template is None:
        _log.warning("no chat template: /v1/chat/completions is refused")
    if not report.exact_tiles:
        _log.warning(
            "this CPU's matrix product changes a row with its neighbours: rows are computed one "
            "by one, which is exact and slow"
        )
