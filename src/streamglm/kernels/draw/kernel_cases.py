"""The contracts' arguments as the kernels of the draws take them, and their cases."""

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


def _greedy_call(values: Values) -> Call:
    from streamglm.kernels.draw import kernel

    logits = rows(values["logits"], TRITON)
    return lambda: {"tokens": kernel.greedy(logits)}


def greedy(values: Values) -> Outputs:
    """All rows in two launches."""
    return arrays(_greedy_call(values)())


GREEDY = Kernel(
    cases=(
        Case("ties", {"M": 12, "V": 90, "DIGITS": 0}),
        Case("two blocks", {"M": 5, "V": 4200, "DIGITS": 1}),
    ),
    full=(
        Case("a row", {"M": 3, "V": 154880, "DIGITS": 6}),
        Case("a wide window, ties", {"M": 32, "V": 154880, "DIGITS": 0}),
    ),
    tolerance=0.0,
    why="an id",
    promises=(each_alone("logits"),),
    ready=timed("draw.greedy", _greedy_call),
    work=lambda values: Work(4 * values["logits"].size),
)
