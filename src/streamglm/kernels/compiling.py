"""The processes that compile kernels ahead: launches on stdin, a byte for each compiled on stdout.

Run as a module. Owns how the work is shared out: this process imports the kernels once and forks,
and each of its children takes the next kernel. Knows no GPU: none is seen here, and the target is
told. Invariant: every process of the group ends when stdin does, so none outlives who asked.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import select
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, as_completed

from triton.backends.compiler import GPUTarget

from streamglm.kernels.absent import absent
from streamglm.kernels.ahead import DONE, Launch, hashed

_work: tuple[list[Launch], GPUTarget]
"""Set before the children are made, which have it from there."""


def main() -> int:
    """1 if some kernel did not compile; the last line on stderr says why."""
    global _work
    out, asker = os.dup(1), os.dup(0)  # a child's own stdin is none
    os.dup2(2, 1)  # a compiler that prints does not count
    known, launches, target, processes = pickle.load(sys.stdin.buffer)
    _end_with(asker)
    hashed(known)
    launches.sort(key=lambda launch: -len(launch.source().fn.src))  # the longest go first
    _work = launches, target
    failed = ""
    with absent(target):
        fork = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(processes, fork, _end_with, (asker,)) as pool:
            for one in as_completed(pool.submit(_compile, at) for at in range(len(launches))):
                if why := one.result():
                    failed = why
                else:
                    os.write(out, DONE)
    sys.stderr.write(failed)
    return 1 if failed else 0


def _compile(at: int) -> str:
    """Why a kernel does not compile, in a line; nothing if it does."""
    launches, target = _work
    try:
        launches[at].compile(target)
    except Exception as error:
        return f"{launches[at].name}: {type(error).__name__}: {error}".replace("\n", " ")
    return ""


def _end_with(asker: int) -> None:
    def watch() -> None:
        poll = select.poll()
        poll.register(asker, select.POLLHUP)
        poll.poll()
        os._exit(1)

    threading.Thread(target=watch, name="end-with-asker", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
