"""What an operator promises, in a form that is run: inputs, a float64 evaluation, bits, faults.

Owns the shape of a contract and how it is verified. Knows no operator; the promises of bits are in
`promises.py`. A contract holds all that a test needs, so that a new operator, or a new
implementation of one, is tested by being listed. Invariant: a contract whose planted faults all
turn it red sees what it claims to see.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from streamglm.kernels import launch
from streamglm.kernels.pages import FLOAT8, Pages, bits, encode, page_bytes, view
from streamglm.kernels.poison import framed, poisoned
from streamglm.kernels.tiling import Tiling

Values = Mapping[str, Any]
"""An operator's arguments by name: numpy arrays, numbers, prepared weights."""
Outputs = dict[str, npt.NDArray[Any]]
Noise = np.random.Generator

TORCH, NUMPY, TRITON = "torch", "numpy", "triton"
"""The forms of rows: of prompts and of windows on the CPU, and of kernels."""
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
    rounding: float = 0.0
    """What storing an output may add to an error, over the value itself: `HALF` for bfloat16."""
    inner: float = 0.0
    """What storing results on the way may add, over the largest value of an output."""


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
class Work:
    """What an operator cannot do without: bytes read and written once, and operations."""

    bytes: int
    flops: int = 0


Call = Callable[[], Mapping[str, torch.Tensor]]
"""An operator on tensors that lie where it computes: nothing but its own work."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """The Triton kernel of an operator, which `run` of its contract launches in the form `TRITON`.

    `cases` are small, for the interpreter; `full` have the model's widths, for a GPU. All faults of
    the contract must turn red in `cases`, and so must those named here.
    """

    cases: tuple[Case, ...]
    full: tuple[Case, ...]
    tolerance: float
    why: str
    promises: tuple[Promise, ...] = ()
    """Beside the contract's own."""
    faults: tuple[Fault, ...] = ()
    ready: Callable[[Values, str], Call] | None = None
    """The call that `run` makes, for the stopwatch."""
    work: Callable[[Values], Work] | None = None


@dataclass(frozen=True, slots=True)
class Contract:
    """One operator."""

    name: str
    arguments: tuple[Argument, ...]
    cases: tuple[Case, ...]
    inputs: Callable[[Mapping[str, int], Noise], Values]
    """Random arguments of the sizes of a case."""
    run: Callable[[Values, str], Outputs]
    """The operator in one form; leaves `values` as they are."""
    exact: Callable[[Values], Outputs]
    """The formula in float64, written to be believed."""
    tolerance: float
    """Largest error, over the largest value of an output (or 1)."""
    why: str
    """Where the tolerance comes from."""
    promises: tuple[Promise, ...]
    faults: tuple[Fault, ...]
    forms: tuple[str, ...] = (TORCH, NUMPY)
    """Of the reference."""
    kernel: Kernel | None = None

    def faults_of(self, form: str) -> tuple[Fault, ...]:
        """Those that must turn red in a form."""
        return self.faults + (self.kernel.faults if self.kernel and form == TRITON else ())

    def verify(self, case: Case, form: str, run: Run | None = None) -> None:
        """Raise `ContractBroken` unless `run` (the operator itself) keeps the contract.

        Fresh memory is NaN meanwhile. Raises `NoDevice` for kernels where nothing runs them.
        """
        with poisoned():
            self._verify(case, form, run)

    def _verify(self, case: Case, form: str, run: Run | None) -> None:
        tolerance, promises = self.tolerance, self.promises
        if form == TRITON:
            assert self.kernel, f"{self.name} has no kernel"
            launch.device()
            tolerance, promises = self.kernel.tolerance, promises + self.kernel.promises
        noise = np.random.default_rng(zlib.crc32(f"{self.name} {case.name}".encode()))
        values = self.inputs(case.sizes, noise)
        run = run or (lambda given: self.run(given, form))
        try:
            outputs = run(values)
            _compare(outputs, self.exact(values), tolerance + case.inner, case.rounding)
            for promise in promises:
                _guarded(promise, run, values, outputs, form, noise)
        except ContractBroken as broken:
            raise ContractBroken(f"{self.name}, {case.name}, {form}: {broken}") from None


def _compare(outputs: Outputs, exact: Outputs, tolerance: float, rounding: float) -> None:
    for name, want in exact.items():
        found = outputs[name]
        if found.shape != want.shape:
            raise ContractBroken(f"{name} has shape {found.shape}, not {want.shape}")
        size = np.abs(want)
        limit = tolerance * max(1.0, size.max(initial=0.0)) + rounding * size
        error = np.abs(found.astype(np.float64) - want)
        if not (error <= limit).all():  # NaN is red
            raise ContractBroken(
                f"{name} is off by {error.max():.2g}, and {limit.max():.2g} is allowed"
            )


def _guarded(
    promise: Promise, run: Run, values: Values, outputs: Outputs, form: str, noise: Noise
) -> None:
    try:
        promise.check(run, values, outputs, form, noise)
    except ContractBroken as broken:
        raise ContractBroken(f"{promise.name}: {broken}") from None


def rows(x: npt.NDArray[Any], form: str, dtype: torch.dtype = torch.float32) -> Any:
    """A copy of x as rows of a form; `dtype` is what a kernel's rows are kept in.

    A kernel's rows lie apart, with NaN between them.
    """
    if form == NUMPY:
        return x.copy()
    copy = torch.from_numpy(x.copy())
    return framed(copy.to(launch.device(), dtype)) if form == TRITON else copy


def vector(x: npt.NDArray[Any], form: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A copy of a weight, contiguous, where the operator of a form wants it."""
    copy = torch.from_numpy(x.copy())
    return copy.to(launch.device(), dtype) if form == TRITON else copy


def indices(x: npt.NDArray[Any]) -> torch.Tensor:
    """A copy of integers as a kernel takes them: int32, contiguous."""
    return torch.from_numpy(x.astype(np.int32)).to(launch.device())


def array(x: torch.Tensor | npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What came back, as an array that numpy computes with."""
    if not isinstance(x, torch.Tensor):
        return x
    narrow = x.is_floating_point() and x.itemsize < 4
    return (x.float() if narrow else x).cpu().numpy()


def arrays(found: Mapping[str, torch.Tensor | npt.NDArray[Any]]) -> Outputs:
    """All that a call gave."""
    return {name: array(value) for name, value in found.items()}


HALF = 2.0**-8
"""Half a unit in the last place of bfloat16, over the value."""


def timed(name: str, ready: Callable[[Values], Call]) -> Callable[[Values, str], Call]:
    """`Kernel.ready` of an operator whose kernel is not called as its reference is: `ready` makes
    the kernel's call; in other forms it is the contract's own run, or its formula without one."""

    def call(values: Values, form: str) -> Call:
        from streamglm.kernels import OPS

        if form == TRITON:
            return ready(values)
        op = next(op for op in OPS if op.name == name)

        def reference() -> dict[str, torch.Tensor]:
            found = op.run(values, op.forms[0]) if op.forms else op.exact(values)
            return {key: torch.from_numpy(value.copy()) for key, value in found.items()}

        return reference

    return call


STORED = {4: torch.float32, 2: torch.bfloat16, 1: FLOAT8}
"""Formats of rows in pages by the bytes of a value."""


def stored(x: npt.NDArray[np.float32], itemsize: int) -> npt.NDArray[np.float32]:
    """x rounded to what float32 (itemsize 4) or bfloat16 (2) holds."""
    return torch.from_numpy(x).to(STORED[itemsize]).float().numpy()


def paged(x: npt.NDArray[np.float32], itemsize: int, form: str = TORCH) -> Pages:
    """x [P, S, D] in pages of a format, as `encode` has it, where the operator of a form reads."""
    count, places, dim = x.shape
    dtype = STORED[itemsize]
    where = launch.device() if form == TRITON else torch.device("cpu")
    memory = torch.zeros(count, page_bytes(places, dim, dtype), dtype=torch.uint8, device=where)
    pages = view(memory, places, dim, dtype)
    values, scales = encode(torch.from_numpy(x).reshape(-1, dim), dtype)
    bits(pages.values).copy_(bits(values).view(x.shape))  # a copy from the CPU, too
    if pages.scales is not None and scales is not None:
        pages.scales.copy_(scales.view(count, places))
    return pages


def on_cpu(pages: Pages) -> Pages:
    """The same rows where numpy reads them."""
    scales = None if pages.scales is None else pages.scales.cpu()
    values = pages.values.cpu()
    host = bits(values).numpy()
    return Pages(values, scales, host, None if scales is None else scales.numpy())


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
