"""`streamglm check --kernels`: every kernel keeps its contract at the model's sizes, on a GPU.

Owns the run over all kernels and the refusal without a GPU. What is promised, and the sizes, are
in the operators' contracts. Almost all of the time is the formulas' in float64 on the CPU, so that
cases are shared out over processes, each with one thread.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.metadata import version

import torch

from streamglm.commands.check_cases import Finding
from streamglm.errors import SettingError
from streamglm.kernels import OPS
from streamglm.kernels.contract import TRITON, Contract, ContractBroken
from streamglm.kernels.launch import NoDevice, device

CLAIM = "full-size cases of kernels keep their contracts"
ROOM = 6 << 30
"""Bytes of a GPU's memory that the largest case and its process take at most."""

Job = tuple[str, int]
"""An operator's name, and which of its full-size cases."""
Verified = tuple[str | None, float]
"""What is broken, if anything, and the seconds that it took to find out."""


def kernel_findings(
    told: Callable[[str], object], ops: Iterable[Contract] = OPS, *, processes: int | None = None
) -> tuple[Finding, ...]:
    """Verify the full-size cases of all kernels, in so many processes; `told` hears what each came
    to, as it ends. Large cases begin first, so that none is left alone at the end.

    Raises `SettingError` without a GPU.
    """
    try:
        device()
    except NoDevice as error:
        raise SettingError(f"--kernels: {error}") from None
    kernels = {op.name: op.kernel for op in ops if op.kernel}
    cases = {
        (name, place): case
        for name, kernel in kernels.items()
        for place, case in enumerate(kernel.full)
    }
    jobs = sorted(cases, key=lambda job: -math.prod(cases[job].sizes.values()))
    verified: dict[Job, Verified] = {}
    for job, (broken, seconds) in _all(jobs, processes or _processes()):
        verified[job] = broken, seconds
        told(f"{job[0]}, {cases[job].name}: {broken or 'kept'}, {seconds:.1f} s")
    found = {
        name: [verified[name, place] for place in range(len(kernel.full))]
        for name, kernel in kernels.items()
    }
    return tuple(
        Finding(
            name,
            len(each),
            tuple(broken for broken, _ in each if broken is not None),
            sum(seconds for _, seconds in each),
        )
        for name, each in found.items()
    )


def about() -> dict[str, str]:
    """What the bits and the errors of kernels depend on, beside the machine."""
    return {"GPU": torch.cuda.get_device_name(), "triton": version("triton")}


def _processes() -> int:
    """As many as there are cores, and as the GPU's free memory has room for."""
    free, _ = torch.cuda.mem_get_info()
    return max(1, min(len(os.sched_getaffinity(0)) - 1, free // ROOM))


def _all(jobs: Sequence[Job], processes: int) -> Iterator[tuple[Job, Verified]]:
    """Each as it ends."""
    if processes == 1:
        yield from ((job, _verified(job)) for job in jobs)
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        processes, spawn, initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        running = {pool.submit(_verified, job): job for job in jobs}
        for ended in as_completed(running):
            yield running[ended], ended.result()


def _verified(job: Job) -> Verified:
    op = next(op for op in OPS if op.name == job[0])
    assert op.kernel
    began = time.perf_counter()
    try:
        op.verify(op.kernel.full[job[1]], TRITON)
    except ContractBroken as error:
        return str(error), time.perf_counter() - began
    return None, time.perf_counter() - began
