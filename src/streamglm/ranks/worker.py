"""What a rank owns, and how it does one message.

Owns the executor, behind the one method that it needs, and the rank's account of the lanes. Knows
no sockets and imports no torch. Invariant: a step is checked whole before the executor sees it,
so a refused step has changed nothing; an executor that raises is of no more use.
"""

from __future__ import annotations

from typing import Protocol

from streamglm.errors import BadStep, FrameMalformed, RanksDiffer, StepRefused
from streamglm.ranks.mirror import Mirror
from streamglm.ranks.records import Records
from streamglm.ranks.wire import (
    Agreed,
    Done,
    Fetch,
    Forget,
    Hello,
    Learn,
    Meet,
    Ping,
    Pong,
    RankSettings,
    Refused,
    Report,
    Stop,
    ToRank,
    ToServer,
    Turned,
    Work,
)
from streamglm.step import Put, Step, StepResult


class Executes(Protocol):
    """Weights, caches and the passes over them; `model/executor.py` is one."""

    def run(self, step: Step) -> StepResult:
        """Execute a step that fits what came before, in the order of its fields."""
        ...


class Told(Protocol):
    """Who hears how a start goes on."""

    def loading(self, done: int, total: int) -> None:
        """Bytes of weights read, of how many."""
        ...

    def phase(self, name: str) -> None:
        """What begins now, in a word."""
        ...

    def note(self, text: str) -> None:
        """A line for the log."""
        ...

    def meet(self, port: int | None) -> int:
        """Rank 0 tells the port on which it waits for the others; they, with None, hear it."""
        ...

    @property
    def records(self) -> Records:
        """The rank's side of the disk: what an executor stages there, and takes from there."""
        ...


class Build(Protocol):
    """How a rank makes its executor; a rank is told which by its dotted name."""

    def __call__(self, hello: Hello, told: Told) -> tuple[Executes, Report]:
        """Load and allocate for `hello.rank` of `hello.world`. Raises `StartError`."""
        ...


class Worker:
    """One rank at work."""

    def __init__(
        self,
        settings: RankSettings,
        executor: Executes,
        records: Records | None = None,
        *,
        world: int = 1,
    ) -> None:
        self._executor = executor
        self._records = records
        self._mirror = Mirror(
            settings.spec,
            settings.pages,
            settings.lanes,
            settings.slots,
            world if settings.kv_split else 1,
        )

    def answer(self, message: ToRank) -> ToServer | None:
        """Do one message. `Refused` for a step that does not fit; None where nothing is to be
        said now. Raises what the executor raises."""
        match message:
            case Work(digest, step):
                return self._step(step, digest)
            case Learn() | Fetch() | Forget():
                if self._records is None:
                    raise FrameMalformed(f"{type(message).__name__}, and this rank has no disk")
                self._records.follow(message)
                return None
            case Ping():
                return Pong()
            case Hello() | Agreed() | Meet() | Turned() | Stop():
                raise FrameMalformed(f"{type(message).__name__} is not a message between steps")

    def _step(self, step: Step, digest: int) -> Done | Refused:
        try:
            self._mirror.check(step, digest)
            for put in step.puts:
                self._check_put(put)
        except (StepRefused, RanksDiffer) as error:
            return Refused(error.message, type(error).__name__)
        result = self._executor.run(step)
        self._mirror.apply(step, result.drawn)
        return Done(result)

    def _check_put(self, put: Put) -> None:
        records = 0 if self._records is None else self._records.ready(put.job)
        wanted = put.stop + put.seal
        if wanted > records:
            raise BadStep(
                f"lane {put.lane}: {wanted} records of job {put.job} are put, {records} are read"
            )
