"""The contracts' arguments as the kernel of the writes takes them, and its cases."""

from __future__ import annotations

import numpy as np
import torch

from streamglm.kernels.contract import (
    TRITON,
    Call,
    Case,
    Kernel,
    Values,
    Work,
    indices,
    on_cpu,
    paged,
    rows,
    timed,
)
from streamglm.kernels.page_write import page_write
from streamglm.kernels.pages import Pages


def _call(values: Values) -> tuple[Call, Pages]:
    """With one row more, of NaN, whose slot is none."""
    pages = paged(values["pages"], values["itemsize"], TRITON)
    given = np.concatenate([values["values"], np.full_like(values["values"][:1], np.nan)])
    found, slots = rows(given, TRITON), indices(np.append(values["slots"], -1))

    def call() -> dict[str, torch.Tensor]:
        page_write(pages, slots, found)
        return {"pages": pages.values}

    return call, pages


def written(values: Values) -> Pages:
    """The pages behind it, where numpy reads them."""
    call, pages = _call(values)
    call()
    return on_cpu(pages)


def writes(itemsize: int) -> Kernel:
    """Of one format."""
    name = {4: "page_write", 2: "page_write.bf16", 1: "page_write.fp8"}[itemsize]
    small = (
        ("rows", {"P": 2, "S": 16, "D": 24, "N": 7}),
        ("every slot", {"P": 2, "S": 4, "D": 5, "N": 8}),
    )
    full = (
        ("latents of a window", {"P": 40, "S": 64, "D": 512, "N": 32}),
        ("latents of a prompt", {"P": 40, "S": 64, "D": 512, "N": 2048}),
        ("pooled keys", {"P": 40, "S": 16, "D": 128, "N": 512}),
    )
    return Kernel(
        cases=tuple(Case(name, {**sizes, "BYTES": itemsize}) for name, sizes in small),
        full=tuple(Case(name, {**sizes, "BYTES": itemsize}) for name, sizes in full),
        tolerance=0.0,
        why="divisions and roundings to the nearest, as the CPU's",
        ready=timed(name, lambda values: _call(values)[0]),
        work=lambda values: Work(values["values"].size * (4 + values["itemsize"])),
    )
