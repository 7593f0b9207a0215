"""Where an operator's arithmetic runs: which tensors go to a Triton kernel, which to a reference.

Owns that choice, for all operators. Knows no operator and imports no Triton, which not every
machine has: an operator imports its `kernel` module when the choice falls on it. Invariant: tensors
on a GPU go to kernels and those of the CPU to references, whatever the environment says; only
inside `interpreted`, which tests alone enter, kernels run on the CPU.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar

import torch

SWITCH = "TRITON_INTERPRET"
"""Triton reads it when a kernel is defined, so it must be set before Triton is imported."""

_INTERPRETED: ContextVar[bool] = ContextVar("interpreted", default=False)


class NoDevice(RuntimeError):
    """Kernels were asked for, and this process has nothing that runs them."""


def by_kernel(x: torch.Tensor) -> bool:
    """Whether an operator that is handed x runs its kernel."""
    return x.is_cuda or _INTERPRETED.get()


def device() -> torch.device:
    """Where the tensors of kernels lie. Raises `NoDevice` without a GPU, outside `interpreted`."""
    if _INTERPRETED.get():
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise NoDevice(
            "kernels need a CUDA device, and torch finds none "
            f"(torch {torch.__version__}, CUDA {torch.version.cuda or 'not built in'})"
        )
    return torch.device("cuda", torch.cuda.current_device())


@contextlib.contextmanager
def interpreted() -> Iterator[None]:
    """Kernels run on tensors of the CPU, by Triton's interpreter.

    Raises `NoDevice` where the process was not made for it: `SWITCH` must be set to 1 before
    anything imports Triton, for kernels that are compiled once stay so.
    """
    if os.environ.get(SWITCH) != "1":
        raise NoDevice(f"kernels are interpreted in a process that starts with {SWITCH}=1 only")
    token = _INTERPRETED.set(True)
    try:
        yield
    finally:
        _INTERPRETED.reset(token)
