"""`python -m bench compiled`: what the compiler makes of every kernel, on a machine without a GPU.

Owns the compilation of each kernel at the full sizes of its contract, and a line of what it takes:
registers, bytes that spill, shared memory, wide matrix instructions. Nothing is launched, so it
has no gate and records no time; a kernel that does not compile makes the run void. Tensors stand
on the CPU and Triton is told of a GPU that is not there.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self
from unittest import mock

import numpy as np
import torch

from bench.record import Void
from streamglm.kernels import OPS, launch
from streamglm.kernels.contract import TRITON, Contract
from streamglm.kernels.launch import SWITCH

CAPABILITY, WARP = 90, 32
"""Of an H200."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """One kernel as one case asks for it. What nobody can tell without a disassembler is None."""

    name: str
    warps: int
    shared: int
    wide: int
    """Matrix instructions of a whole warp group."""
    registers: int | None
    spilled: int | None
    """Bytes a thread."""

    @classmethod
    def of(cls, name: str, kernel: Any) -> Self:
        """`kernel` is what Triton's compiler gives back."""
        used = _usage(kernel.asm["cubin"])
        return cls(
            name=name,
            warps=kernel.metadata.num_warps,
            shared=kernel.metadata.shared,
            wide=kernel.asm["ptx"].count("wgmma.mma_async"),
            registers=used.get("REG"),
            spilled=used.get("STACK"),
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m bench compiled`."""
    parser.add_argument("--only", default="", help="operators whose names begin so")


def run(args: argparse.Namespace) -> int:
    """Compile and print. Raises `Void` where a kernel does not compile, or Triton interprets."""
    if os.environ.get(SWITCH) == "1":
        raise Void(f"{SWITCH} is 1, so kernels would be interpreted: unset it")
    line = "{:8} {:>5} {:>9} {:>7} {:>7} {:>5}  {}"
    print(line.format("", "warps", "registers", "spilled", "shared", "wide", "kernel of a case"))
    for op in OPS:
        if op.kernel and op.name.startswith(args.only):
            for case, one in compiled(op):
                cells = (one.warps, one.registers, one.spilled, one.shared, one.wide)
                shown = ("?" if value is None else value for value in cells)
                marked = "spills" if one.spilled else ""
                about = f"{one.name} of {op.name}, {case}"
                print(line.format(marked, *shown, about), flush=True)
    return 0


def compiled(op: Contract) -> Iterator[tuple[str, Compiled]]:
    """Every kernel of the operator's full-size cases, once for each of them."""
    assert op.kernel
    for case in op.kernel.full:
        with nothing_runs() as kernels:
            values = op.inputs(case.sizes, np.random.default_rng(0))
            try:
                op.run(values, TRITON)
            except Exception as error:
                raise Void(f"{op.name}, {case.name}: {error}") from error
        for name, kernel in kernels.items():
            yield case.name, Compiled.of(name, kernel)


@contextmanager
def nothing_runs() -> Iterator[dict[str, Any]]:
    """Launches compile only, and are told by name; tensors of the CPU go to kernels."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime.jit import JITFunction

    from streamglm.kernels.absent import absent

    seen: dict[str, Any] = {}
    launched = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = launched(self, *args, grid=grid, warmup=True, **kwargs)
        seen[self.fn.__name__] = kernel
        return kernel

    with (
        absent(GPUTarget("cuda", CAPABILITY, WARP)),
        mock.patch.object(JITFunction, "run", compile_only),
        mock.patch.object(launch, "device", return_value=torch.device("cpu")),
        mock.patch.object(launch, "by_kernel", return_value=True),
    ):
        yield seen


def _usage(cubin: bytes) -> dict[str, int]:
    """Registers and stack as the disassembler in Triton's package tells them."""
    import triton

    path = triton.knobs.nvidia.cuobjdump.path
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        told = subprocess.run(
            [path, "--dump-resource-usage", file.name], capture_output=True, text=True, check=False
        )
    return {name: int(value) for name, value in re.findall(r"(REG|STACK):(\d+)", told.stdout)}
