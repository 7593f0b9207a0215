"""What an operator promises, in a form that is run: inputs, a float64 evaluation, bits, faults.

Owns the shape of a contract and how it is verified. Knows no operator. A contract holds all that
a test needs, so that a new operator, or a new implementation of one, is tested by being listed.
Invariant: a contract whose planted faults all turn it red sees what it claims to see.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from streamglm.kernels.pages import FLOAT8, Pages, bits, encode, page_bytes, view
from streamglm.kernels.tiling import Tiling

Values = Mapping[str, Any]
"""An operator's arguments by name: numpy arrays, numbers, prepared weights."""
Outputs = dict[str, npt.NDArray[Any]]
Noise = np.random.Generator

TORCH, NUMPY = "torch", "numpy"
"""The two forms of rows: of prompts, and of windows."""
TILINGS: Mapping[str, Tiling] = {TORCH: Tiling((16, 64)), NUMPY: Tiling((4,))}
"""What the self-check proves on a machine that holds the law."""


class ContractBroken(AssertionError):
    """An operator does not do what its contract says. The message names operator, case and form."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: its shape in capitals, its dtype, and what else it must be."""

    name: str
    shape: str
    dtype: str = "float32"
    note: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """Sizes for the capitals of the shapes, awkward on purpose."""

    name: str
    sizes: Mapping[str, int]


Run = Callable[[Values], Outputs]
"""An operator with its form chosen."""
Check = Callable[[Run, Values, Outputs, str, Noise], None]
"""(run, values, their outputs, form, noise); raises `ContractBroken`."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise about bits."""

    name: str
    check: Check


@dataclass(frozen=True, slots=True)
class Fault:
    """A wrong operator. At least one case must turn red with it."""

    name: str
    run: Callable[[Values, str], Outputs]


@dataclass(frozen=True, slots=True)
class Contract:
    """One operator."""

    name: str
    arguments: tuple[Argument, ...]
    cases: tuple[Case, ...]
    inputs: Callable[[Mapping[str, int], Noise], Values]
    """Random arguments of the sizes of a case."""
    run: Callable[[Values, str], Outputs]
    """The operator in one form ("torch" or "numpy"); leaves `values` as they are."""
    exact: Callable[[Values], Outputs]
    """The formula in float64, written to be believed."""
    tolerance: float
    """Largest error, over the largest value of an output (or 1)."""
    why: str
    """Where the tolerance comes from."""
    promises: tuple[Promise, ...]
    faults: tuple[Fault, ...]
    forms: tuple[str, ...] = (TORCH, NUMPY)

    def verify(self, case: Case, form: str, run: Run | None = None) -> None:
        """Raise `ContractBroken` unless `run` (the operator itself) keeps the contract."""
        noise = np.random.default_rng(zlib.crc32(f"{self.name} {case.name}".encode()))
        values = self.inputs(case.sizes, noise)
        run = run or (lambda given: self.run(given, form))
        try:
            outputs = run(values)
            self._compare(outputs, self.exact(values))
            for promise in self.promises:
                _guarded(promise, run, values, outputs, form, noise)
        except ContractBroken as broken:
            raise ContractBroken(f"{self.name}, {case.name}, {form}: {broken}") from None

    def _compare(self, outputs: Outputs, exact: Outputs) -> None:
        for name, want in exact.items():
            found = outputs[name]
            if found.shape != want.shape:
                raise ContractBroken(f"{name} has shape {found.shape}, not {want.shape}")
            error = np.abs(found.astype(np.float64) - want).max(initial=0.0)
            limit = self.tolerance * max(1.0, np.abs(want).max(initial=0.0))
            if not error <= limit:  # NaN is red
                raise ContractBroken(f"{name} is off by {error:.2g}, and {limit:.2g} is allowed")


def _guarded(
    promise: Promise, run: Run, values: Values, outputs: Outputs, form: str, noise: Noise
) -> None:
    try:
        promise.check(run, values, outputs, form, noise)
    except ContractBroken as broken:
        raise ContractBroken(f"{promise.name}: {broken}") from None


def rows(x: npt.NDArray[Any], form: str) -> Any:
    """A copy of x as rows of a form."""
    return torch.from_numpy(x.copy()) if form == TORCH else x.copy()


def array(x: torch.Tensor | npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What came back, as an array."""
    return x.numpy() if isinstance(x, torch.Tensor) else x


STORED = {4: torch.float32, 2: torch.bfloat16, 1: FLOAT8}
"""Formats of rows in pages by the bytes of a value."""


def paged(x: npt.NDArray[np.float32], itemsize: int) -> Pages:
    """x [P, S, D] in pages of a format, as `encode` has it."""
    count, places, dim = x.shape
    dtype = STORED[itemsize]
    memory = torch.zeros(count, page_bytes(places, dim, dtype), dtype=torch.uint8)
    pages = view(memory, places, dim, dtype)
    values, scales = encode(torch.from_numpy(x).reshape(-1, dim), dtype)
    bits(pages.values).copy_(bits(values).view(x.shape))
    if pages.scales is not None and scales is not None:
        pages.scales.copy_(scales.view(count, places))
    return pages


def representable(noise: Noise, itemsize: int, *shape: int) -> npt.NDArray[np.float32]:
    """Random rows [..., D] that pages of a format hold without a loss, each of its own size."""
    x = noise.standard_normal(shape, np.float32) * np.exp2(
        noise.integers(-3, 3, (*shape[:-1], 1)).astype(np.float32)
    )
    if itemsize == 1:
        # the largest a float8, and the scale a power of two
        x[..., 0] = 448.0 * np.exp2(noise.integers(-9, -6, shape[:-1]).astype(np.float32))
        x[..., 1:] = np.clip(x[..., 1:], -x[..., :1], x[..., :1])
    values, scales = encode(torch.from_numpy(x.reshape(-1, shape[-1])), STORED[itemsize])
    kept = values.float() if scales is None else values.float() * scales[:, None]
    return kept.view(shape).numpy()


def same_bits(what: str, want: Outputs, found: Outputs) -> None:
    """Raise `ContractBroken` unless all outputs are equal bit by bit."""
    for name, value in want.items():
        if not np.array_equal(value, found[name]):
            raise ContractBroken(f"{name} has other bits {what}")


def own_rows(*names: str, unit: Mapping[str, int] | None = None) -> Promise:
    """Row i of every output depends on row i of the arguments `names` and on nothing beside it.

    Shown in another order, beside other rows, and with fewer rows (`unit` of them by form).
    """
    units = unit or {TORCH: 1, NUMPY: 1}

    def check(run: Run, values: Values, outputs: Outputs, form: str, noise: Noise) -> None:
        count = len(values[names[0]])
        order = noise.permutation(count)
        moved = run({**values, **{name: values[name][order] for name in names}})
        same_bits("in another order", {k: v[order] for k, v in outputs.items()}, moved)
        other = noise.random(count) < 0.5
        changed = {name: _replaced(values[name], other, noise) for name in names}
        found = run({**values, **changed})
        kept = {name: value[~other] for name, value in outputs.items()}
        same_bits("beside other rows", kept, {k: v[~other] for k, v in found.items()})
        few = units[form]
        if count > few:
            found = run({**values, **{name: values[name][:few] for name in names}})
            same_bits(f"in {few} rows", {k: v[:few] for k, v in outputs.items()}, found)

    return Promise("rows alone equal rows together", check)


def _replaced(x: npt.NDArray[Any], other: npt.NDArray[np.bool_], noise: Noise) -> Any:
    """x with its `other` rows made smaller, each by a factor of its own; signs stay."""
    x = x.copy()
    if x.dtype == np.float32:
        factors = 0.1 + 0.8 * noise.random(len(x), np.float32)
        x[other] *= factors[other].reshape(-1, *(1,) * (x.ndim - 1))
    return x


def own_prefix(*names: str, outputs: tuple[str, ...]) -> Promise:
    """Row i of `outputs` depends on rows up to i of the arguments `names`, not on later ones."""

    def check(run: Run, values: Values, found: Outputs, form: str, noise: Noise) -> None:
        count = len(values[names[0]])
        for cut in {1, count // 3, count // 2 + 1, count - 1}:
            other = np.arange(count) >= cut
            changed = {name: _replaced(values[name], other, noise) for name in names}
            again = run({**values, **changed})
            head = {name: found[name][:cut] for name in outputs}
            same_bits(f"when rows from {cut} on change", head, {k: again[k][:cut] for k in outputs})

    return Promise("later rows do not matter", check)


def beside(run: Callable[[Values, str], Outputs], name: str, output: str) -> Fault:
    """A fault in bits alone: an output takes a breath of its neighbour's row of `name`."""

    def faulty(values: Values, form: str) -> Outputs:
        outputs = run(values, form)
        breath = np.float32(1e-7) * np.roll(values[name], 1, 0).reshape(len(values[name]), -1)[:, 0]
        value = outputs[output]
        shape = (len(value),) + (1,) * (value.ndim - 1)
        return {**outputs, output: value + breath.reshape(shape) * (1.0 + np.abs(value))}

    return Fault(f"{output} depends on the row beside", faulty)


def formula(name: str, exact: Callable[[Values], Outputs]) -> Fault:
    """A fault in the formula: another one, evaluated in float64."""

    def faulty(values: Values, form: str) -> Outputs:
        return {key: value.astype(np.float32) for key, value in exact(values).items()}

    return Fault(name, faulty)
