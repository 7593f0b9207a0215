"""Kernels compiled before they are launched, side by side: a first start waits for one compilation
in each of several processes, not for all of them in a row.

Owns what a launch asks of the compiler, which launches Triton's cache does not have, and the
processes that compile those (`compiling` is what runs there). Knows no model: a pass under
`recorded` says what it would launch, and launches nothing. Invariant: nothing depends on it. What
is not compiled here, for whatever reason, is compiled when it is launched, and is the same program.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import pickle
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import triton
from triton._C.libtriton import get_cache_invalidating_env_vars
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime import driver
from triton.runtime.cache import get_cache_key, get_cache_manager

FEW = 4
"""Fewer kernels than these are compiled when they are launched: processes take as long to start."""
_MOST = 32
"""Processes at most: each takes a few hundred megabytes."""
_SECONDS = 120.0
"""Without any kernel done, after which nobody waits for the processes any more."""
_NAME = 150
"""Characters of a kernel's name that Triton's cache keeps in the names of its files."""

DONE = b"."
"""What the processes say of each kernel that they compiled; of another they say nothing."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Launch:
    """What the compiler is asked for: a kernel, the types of its arguments and what they have in
    common with others (a multiple of 16, 1), its constants, and options."""

    module: str
    name: str
    signature: dict[str, Any]
    constants: dict[Any, Any]
    attributes: dict[Any, Any]
    options: dict[str, Any]

    def source(self) -> ASTSource:
        """As Triton compiles it."""
        kernel = getattr(importlib.import_module(self.module), self.name)
        return ASTSource(kernel, self.signature, self.constants, self.attributes)

    def cached(self, target: GPUTarget) -> bool:
        """Whether Triton's cache has it."""
        source, backend = self.source(), make_backend(target)
        options = backend.parse_options(dict(self.options))
        variables = get_cache_invalidating_env_vars()
        key = get_cache_key(source, backend, options, env_vars=variables)
        cache = get_cache_manager(hashlib.sha256(key.encode()).hexdigest())
        file = f"{source.name[:_NAME]}.json"
        return file in (cache.get_group(file) or {})

    def compile(self, target: GPUTarget) -> None:
        """Into Triton's cache. Raises what the compiler raises."""
        triton.compile(self.source(), target=target, options=dict(self.options))


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """Launches that this process has not made before are not made now: they are told, once each,
    and the tensors that they would have written stay as they are."""
    found: list[Launch] = []
    seen: set[tuple[str, str, str]] = set()

    def hook(*, key: str, fn: Any, compile: dict[str, Any], **about: Any) -> bool:
        kernel = fn.jit_function
        asked = kernel.__module__, kernel.__name__, str(key)
        if asked not in seen:
            seen.add(asked)
            found.append(
                Launch(
                    module=kernel.__module__,
                    name=kernel.__name__,
                    signature=compile["signature"],
                    constants=compile["constants"],
                    attributes=compile["configs"][0],
                    options=_options(compile),
                )
            )
        return True

    runtime = triton.knobs.runtime
    before, runtime.jit_cache_hook = runtime.jit_cache_hook, hook
    try:
        yield found
    finally:
        runtime.jit_cache_hook = before


def _options(asked: dict[str, Any]) -> dict[str, Any]:
    """All of them, which the hook is handed in the text that another process could load."""
    told = json.loads(asked["specialization_data"])["options"]
    return {name: _tuple(value) for name, value in told.items()}


def _tuple(value: Any) -> Any:
    return tuple(_tuple(one) for one in value) if isinstance(value, list) else value


def hashed(launches: Sequence[Launch]) -> None:
    """Have Triton hash every kernel now, in this order. What it makes of a kernel's code depends on
    which it has hashed before, so two processes name a kernel alike in the cache only so."""
    for launch in launches:
        launch.source().hash()


def compile_missing(launches: Sequence[Launch], say: Say, phase: Say, *, cores: int = 0) -> int:
    """Compile what Triton's cache lacks for this process's GPU, in as many processes as there are
    `cores` (0: those that this process may run on). How many kernels that were; raises nothing
    that a process of its own may fail of, and tells `say` instead."""
    target = driver.active.get_current_target()
    launches = sorted(launches, key=lambda launch: (launch.module, launch.name))
    hashed(launches)
    missing = [launch for launch in launches if not launch.cached(target)]
    processes = min(cores or len(os.sched_getaffinity(0)), len(missing), _MOST)
    if len(missing) < FEW or processes < 2:
        return 0
    line = f"compiling {len(missing)} kernels in {processes} processes, once"
    phase(line)
    say(line)
    began = time.perf_counter()
    done, why = _compiled(launches, missing, target, processes)
    took = time.perf_counter() - began
    say(f"compiled {done} of {len(missing)} kernels in {processes} processes: {took:.0f} s")
    if done < len(missing):
        say(f"the other kernels are compiled when they are launched: {why}")
    return done


def _compiled(
    launches: Sequence[Launch], missing: Sequence[Launch], target: GPUTarget, processes: int
) -> tuple[int, str]:
    """How many of the `missing` of `launches` a group of processes compiled, and why not all."""
    path = os.pathsep.join(one for one in sys.path if one)
    # no GPU is seen there, so that none of its memory is taken
    env = {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}
    done, why = 0, ""
    with tempfile.TemporaryFile() as errors:
        try:
            child = subprocess.Popen(
                [sys.executable, "-m", "streamglm.kernels.compiling"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=env,
            )  # fmt: skip
        except OSError as error:
            return 0, str(error)
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                pickle.dump((launches, missing, target, processes), child.stdin)
                child.stdin.flush()  # it stays open: its end is what ends the processes
            while done < len(missing):
                ready, _, _ = select.select([child.stdout], [], [], _SECONDS)
                if not ready:
                    why = f"nothing was done for {_SECONDS:.0f} s"
                    break
                if not (told := os.read(child.stdout.fileno(), 4096)):
                    break
                done += told.count(DONE)
        finally:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.close()
            child.stdout.close()
            child.kill()
            child.wait()
        if done < len(missing) and not why:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines()
            why = lines[-1] if lines else f"the process ended with {child.returncode}"
    return done, why


def tell_late(say: Say) -> None:
    """From now on, say of each kernel that this process compiles that it did: a launch waited for
    it. What stands in Triton's cache is not told."""

    def listener(*, src: Any, cache_hit: bool, times: Any, **about: Any) -> None:
        if not cache_hit:
            say(f"compiled {src.name} when it was launched: {times.total / 1e6:.1f} s")

    triton.knobs.compilation.listener = listener
