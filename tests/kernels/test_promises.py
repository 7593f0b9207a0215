"""Promises about bits are red for an operator that breaks them, and green for one that does not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from streamglm.kernels.contract import (
    TORCH,
    Case,
    Contract,
    ContractBroken,
    Outputs,
    Promise,
    Values,
)
from streamglm.kernels.poison import framed
from streamglm.kernels.promises import any_chunks, any_page_order, each_alone

BREATH = np.float32(1e-7)


def kept(promise: Promise, run: Callable[[Values], Outputs], values: Values) -> bool:
    try:
        promise.check(run, values, run(values), TORCH, np.random.default_rng(0))
    except ContractBroken:
        return False
    return True


def x(rows: int) -> Values:
    return {"x": np.random.default_rng(1).standard_normal((rows, 3)).astype(np.float32)}


def own(values: Values) -> Outputs:
    return {"y": values["x"] * 2}


def of_the_count(values: Values) -> Outputs:
    """A bit of every row depends on how many rows there are."""
    return {"y": values["x"] * (2 + BREATH * len(values["x"]))}


def of_the_last(values: Values) -> Outputs:
    """The last of several rows has another bit."""
    y = values["x"] * 2
    y[-1] *= 1 + BREATH * (len(y) > 1)
    return {"y": y}


@pytest.mark.parametrize("promise", [each_alone("x"), any_chunks("x")], ids=["alone", "chunks"])
@pytest.mark.parametrize("wrong", [of_the_count, of_the_last])
def test_a_row_that_depends_on_its_company_is_red(
    promise: Promise, wrong: Callable[[Values], Outputs]
) -> None:
    assert kept(promise, own, x(9))
    assert not kept(promise, wrong, x(9))


def pages() -> Values:
    noise = np.random.default_rng(2)
    return {
        "pages": noise.standard_normal((5, 4, 2)).astype(np.float32),
        "ids": np.array([3, 5, 0], np.int64),  # page 5 is the null page
        "slots": np.array([7, 0, 20], np.int64),
    }


def read(values: Values, shift: int = 0) -> Outputs:
    whole = np.concatenate([values["pages"], np.zeros((1, 4, 2), np.float32)])
    return {
        "of ids": whole[(values["ids"] + shift) % 6],
        "of slots": whole.reshape(-1, 2)[values["slots"]],
    }


def test_an_address_that_a_table_did_not_give_is_red() -> None:
    promise = any_page_order(("pages",), ("ids",), {"slots": 4})
    assert kept(promise, read, pages())
    assert not kept(promise, lambda values: read(values, 1), pages())
    assert not kept(promise, lambda values: {"first": values["pages"][0]}, pages())


def test_memory_that_nobody_wrote_is_red_in_a_contract_without_a_fixture() -> None:
    def forgetful(values: Values, form: str) -> Outputs:
        y = torch.empty(values["x"].shape)
        y[:-1] = torch.from_numpy(values["x"][:-1])
        return {"y": y.numpy()}

    contract = Contract(
        name="copy",
        arguments=(),
        cases=(Case("rows", {"R": 4}),),
        inputs=lambda sizes, noise: x(sizes["R"]),
        run=forgetful,
        exact=lambda values: {"y": values["x"].astype(np.float64)},
        tolerance=0.0,
        why="a copy",
        promises=(),
        faults=(),
    )
    with pytest.raises(ContractBroken, match="off by nan"):
        contract.verify(contract.cases[0], TORCH)


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 5), (1, 70)])
def test_a_framed_tensor_has_its_values_with_nan_around(shape: tuple[int, ...]) -> None:
    x = torch.arange(float(np.prod(shape))).view(shape)
    found = framed(x)
    assert torch.equal(found, x)
    assert found.stride(-1) == 1
    memory = torch.tensor([]).set_(found.untyped_storage())
    assert int(memory.isnan().sum()) == len(memory) - x.numel()
    assert found.storage_offset() > 0
    assert memory[-1].isnan()
    assert memory[found.storage_offset() + shape[-1]].isnan()
