"""What every operator checks of its arguments, and the error that it raises.

Owns the named error and the two kinds of rows. Knows no operator. Rows of a prompt are torch
tensors; the few rows of a window are numpy arrays, since on the CPU an operator on a few rows is
all overhead, and numpy's is a third of torch's. An operator gives back what it was given.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[np.float32]
Wide = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

Rows = TypeVar("Rows", torch.Tensor, Array)


class ArgumentError(ValueError):
    """An operator was handed shapes that do not fit. The message names operator and argument."""
