"""Contracts of moving whole pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

from streamglm.kernels.contract import (
    TORCH,
    Argument,
    Call,
    Case,
    Contract,
    Fault,
    Kernel,
    Noise,
    Outputs,
    Promise,
    Run,
    Values,
    Work,
    arrays,
    formula,
    vector,
)
from streamglm.kernels.page_move import copy, fill, pack
from streamglm.kernels.promises import same_bits

_POISON = 0xFF


def _inputs(sizes: Mapping[str, int], noise: Noise) -> Values:
    """Random bytes; pages that nobody names are poison."""
    caches, pages, size, count = (sizes[name] for name in ("L", "P", "B", "N"))
    order = noise.permutation(pages)
    memory = np.full((caches, pages, size), _POISON, np.uint8)
    memory[:, order[:count]] = noise.integers(0, 256, (caches, count, size), np.uint8)
    return {
        "memory": memory,
        "sources": order[:count],
        "targets": order[count : 2 * count],
        "packed": noise.integers(0, 256, (caches, count, size), np.uint8),
    }


def _bytes(values: Values, name: str, form: str) -> torch.Tensor:
    return vector(values[name], form, torch.uint8)


def _ids(values: Values, name: str, form: str) -> torch.Tensor:
    return vector(values[name], form, torch.int64)


def _copy_ready(values: Values, form: str) -> Call:
    memory = _bytes(values, "memory", form)
    sources, targets = _ids(values, "sources", form), _ids(values, "targets", form)

    def call() -> dict[str, torch.Tensor]:
        copy(memory, sources, targets)
        return {"memory": memory}

    return call


def _pack_ready(values: Values, form: str) -> Call:
    memory, pages = _bytes(values, "memory", form), _ids(values, "sources", form)
    return lambda: {"packed": pack(memory, pages)}


def _fill_ready(values: Values, form: str) -> Call:
    memory, pages = _bytes(values, "memory", form), _ids(values, "targets", form)
    packed = _bytes(values, "packed", form)

    def call() -> dict[str, torch.Tensor]:
        fill(memory, pages, packed)
        return {"memory": memory}

    return call


def _copy_exact(values: Values, shift: int = 0) -> Outputs:
    memory = values["memory"].copy()
    memory[:, values["targets"]] = values["memory"][:, np.roll(values["sources"], shift)]
    return {"memory": memory}


def _pack_exact(values: Values, shift: int = 0) -> Outputs:
    return {"packed": values["memory"][:, np.roll(values["sources"], shift)]}


def _fill_exact(values: Values, shift: int = 0) -> Outputs:
    memory = values["memory"].copy()
    memory[:, np.roll(values["targets"], shift)] = values["packed"]
    return {"memory": memory}


def _half_lost(exact: Callable[[Values], Outputs], output: str) -> Fault:
    """The second half of the last page moved is what was there before, or nothing."""

    def lost(values: Values) -> Outputs:
        found = exact(values)[output].copy()
        page = -1 if output == "packed" else values["targets"][-1]
        found[:, page, found.shape[2] // 2 :] = _POISON
        return {output: found}

    return formula("half a page is lost", lost)


def _any_order(output: str) -> Promise:
    """Lists in another order move the same pages: memory is equal, what is packed is reordered."""

    def check(run: Run, values: Values, outputs: Outputs, form: str, noise: Noise) -> None:
        order = noise.permutation(len(values["sources"]))
        moved = {name: values[name][order] for name in ("sources", "targets")}
        found = run({**values, **moved, "packed": values["packed"][:, order]})
        want = outputs[output]
        same_bits(
            "with its pages in another order",
            {output: want[:, order] if output == "packed" else want},
            found,
        )

    return Promise("any order of pages", check)


def _contract(
    name: str,
    ready: Callable[[Values, str], Call],
    exact: Callable[..., Outputs],
    output: str,
    arguments: tuple[str, ...],
) -> Contract:
    described = {
        "memory": Argument("memory", "L P B", "uint8", "L caches, P pages of B bytes"),
        "sources": Argument("sources", "N", "int64"),
        "targets": Argument("targets", "N", "int64", "each once, no source among them"),
        "packed": Argument("packed", "L N B", "uint8"),
    }
    small = (
        Case("a few pages", {"L": 2, "P": 9, "B": 48, "N": 4}),
        Case("over a block", {"L": 1, "P": 3, "B": 16400, "N": 1}),
    )
    full = (
        Case("bfloat16 latents", {"L": 11, "P": 200, "B": 65536, "N": 64}),
        Case("float8 latents", {"L": 11, "P": 200, "B": 33024, "N": 64}),
        Case("pooled keys", {"L": 11, "P": 200, "B": 4096, "N": 64}),
    )
    return Contract(
        name=f"page_move.{name}",
        arguments=tuple(described[argument] for argument in arguments),
        cases=small,
        inputs=_inputs,
        run=lambda values, form: arrays(ready(values, form)()),
        exact=exact,
        tolerance=0.0,
        why="bytes are moved",
        promises=(_any_order(output),),
        faults=(
            formula("each page is the one beside", lambda values: exact(values, shift=1)),
            _half_lost(exact, output),
        ),
        forms=(TORCH,),
        kernel=Kernel(
            cases=small,
            full=full,
            tolerance=0.0,
            why="bytes are moved",
            ready=ready,
            work=lambda values: Work(2 * values["packed"].nbytes),
        ),
    )


CONTRACTS = (
    _contract("copy", _copy_ready, _copy_exact, "memory", ("memory", "sources", "targets")),
    _contract("pack", _pack_ready, _pack_exact, "packed", ("memory", "sources")),
    _contract("fill", _fill_ready, _fill_exact, "memory", ("memory", "targets", "packed")),
)
