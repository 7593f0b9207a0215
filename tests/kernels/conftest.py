"""Fresh memory is NaN while an operator runs, and a process interprets the kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from streamglm.kernels.poison import poisoned
from support.interpreter import Interpreter


@pytest.fixture(autouse=True)
def poisoned_memory() -> Iterator[None]:
    """Also beyond contracts, whose `verify` sees to it itself."""
    torch.set_num_threads(1)
    with poisoned():
        yield


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Interpreter]:
    """One a test process, started when the first test asks for it."""
    with Interpreter() as started:
        yield started
