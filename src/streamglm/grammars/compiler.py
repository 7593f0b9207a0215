"""The server's side of compiling: one question at a time, each within its time.

Owns the compiling process, which starts with the first question and again after one that it did
not survive, and the answers that were given lately. Knows no HTTP. Imports neither torch nor
the grammar library: both live in that process. Invariant: whatever a constraint is, the answer is a
grammar or a refusal after at most `SECONDS` of compiling, and the event loop never waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import sys
from asyncio.subprocess import PIPE, Process
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from streamglm.errors import CompilerFailed, InvalidRequest, Overloaded
from streamglm.grammars.wire import LENGTH, Compile, Compiled, framed
from streamglm.text.constraint import Constraint

PROCESS = "streamglm.grammars.process"
SECONDS = 4.0
"""Of compiling; what takes longer is refused."""
START_SECONDS = 60.0
LARGEST = 8 << 20
"""Bytes of a grammar that is sent to the ranks."""
MOST_ASKING = 16
"""Requests that wait for a grammar, the one that is being compiled among them."""
MOST_KEPT = 64
KEPT_BYTES = 64 << 20


def installed() -> bool:
    """Whether the grammar library is there."""
    return importlib.util.find_spec("xgrammar") is not None


class Compiler:
    """Compiles constraints over the vocabulary of the checkpoint in `folder`."""

    def __init__(
        self,
        folder: Path,
        vocab_size: int,
        stops: Sequence[int],
        *,
        seconds: float = SECONDS,
    ) -> None:
        listed = ",".join(map(str, stops))
        self._command = (sys.executable, "-m", PROCESS, str(folder), str(vocab_size), listed)
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._process: Process | None = None
        self._asking = 0
        self._kept: OrderedDict[Constraint, Compiled] = OrderedDict()

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return None if self._process is None else self._process.pid

    async def compile(self, constraint: Constraint) -> bytes:
        """The grammar of `constraint`. Raises `InvalidRequest`, without a field's name, when there
        is none; `Overloaded`; and `CompilerFailed`."""
        compiled = self._kept.get(constraint) or await self._in_turn(constraint)
        if compiled.refusal:
            raise InvalidRequest(compiled.refusal)
        return compiled.grammar

    async def _in_turn(self, constraint: Constraint) -> Compiled:
        if self._asking >= MOST_ASKING:
            raise Overloaded(f"{self._asking} requests wait for the grammar compiler")
        self._asking += 1
        try:
            async with self._turn:
                compiled = self._kept.get(constraint) or await self._ask(constraint)
        finally:
            self._asking -= 1
        if len(compiled.grammar) > LARGEST:
            size = len(compiled.grammar)
            compiled = Compiled(
                refusal=f"its grammar has {size} bytes; at most {LARGEST} are served"
            )
        self._keep(constraint, compiled)
        return compiled

    async def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _ask(self, constraint: Constraint) -> Compiled:
        content = constraint.content
        form, source = (content.form, content.source) if content else ("", "")
        process = await self._started()
        try:
            async with asyncio.timeout(self._seconds):
                return await _exchange(process, Compile(form, source, constraint.calls))
        except TimeoutError:
            await self.close()
            return Compiled(refusal=f"it takes more than {self._seconds:g} s to compile")
        except (asyncio.IncompleteReadError, ConnectionError):
            await self.close()
            return Compiled(refusal="it is more than the compiler can hold")
        except BaseException:  # nobody reads the answer: the next question needs a fresh process
            await self.close()
            raise

    async def _started(self) -> Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, limit=1 << 20
        )
        try:
            async with asyncio.timeout(START_SECONDS):
                await _answer(self._process)
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError | asyncio.IncompleteReadError):
                raise CompilerFailed("The grammar compiler does not start.") from None
            raise
        return self._process

    def _keep(self, constraint: Constraint, compiled: Compiled) -> None:
        self._kept.pop(constraint, None)
        self._kept[constraint] = compiled
        while len(self._kept) > MOST_KEPT or self._kept_bytes() > KEPT_BYTES:
            self._kept.popitem(last=False)

    def _kept_bytes(self) -> int:
        return sum(len(compiled.grammar) for compiled in self._kept.values())


async def _exchange(process: Process, question: Compile) -> Compiled:
    assert process.stdin is not None
    process.stdin.write(framed(question))
    await process.stdin.drain()
    return await _answer(process)


async def _answer(process: Process) -> Compiled:
    assert process.stdout is not None
    (size,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
    return msgspec.msgpack.decode(await process.stdout.readexactly(size), type=Compiled)
