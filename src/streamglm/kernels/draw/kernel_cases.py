"""The contract's arguments as the kernel of the draws takes them, and its cases."""

from __future__ import annotations

import torch

from streamglm.kernels import launch
from streamglm.kernels.contract import (
    TRITON,
    Call,
    Case,
    Kernel,
    Outputs,
    Values,
    Work,
    arrays,
    rows,
    timed,
)
from streamglm.kernels.promises import each_alone


def _call(values: Values) -> Call:
    from streamglm.kernels.draw import kernel

    where, spelled = launch.device(), values["spelled"]
    logits = rows(values["logits"], TRITON)
    numbers = torch.from_numpy(values["numbers"]).to(where)
    counts = torch.from_numpy(values["counts"]).to(where)
    return lambda: {"tokens": kernel.draw(logits, numbers, counts, spelled)}


def keyed(values: Values) -> Outputs:
    """All rows in one launch."""
    return arrays(_call(values)())


KEYED = Kernel(
    cases=(
        Case("ties", {"M": 12, "V": 90, "DIGITS": 0}),
        Case("two blocks", {"M": 5, "V": 2100, "DIGITS": 2}),
    ),
    full=(
        Case("a window", {"M": 8, "V": 154880, "DIGITS": 6}),
        Case("a wide window, ties", {"M": 32, "V": 154880, "DIGITS": 1}),
    ),
    tolerance=0.0,
    why="an id: shares and sums are float64",
    promises=(each_alone("logits", "numbers", "counts"),),
    ready=timed("draw.keyed", _call),
    work=lambda values: Work(4 * values["logits"].size),
)
