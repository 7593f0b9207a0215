"""Other implementations of an operator that are installed, on the tensors of its contract.

Owns the names of peers and how each is called. A peer that is not installed is left out. Whoever
times them has checked that they compute the same.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F

from streamglm.kernels import launch
from streamglm.kernels.contract import STORED, TRITON, Call, Values, indices, vector
from streamglm.kernels.matrix import Format
from streamglm.kernels.mlp.device_contract import LIMIT

Make = Callable[[Values], Call | None]
"""None where the peer has nothing for these sizes or formats."""


def of(op: str) -> Iterator[tuple[str, Make]]:
    """(name, what makes its call) of every peer of the operator that is installed."""
    for ours, name, package, make in PEERS:
        if op == ours and importlib.util.find_spec(package):
            yield name, make


def _tensor(values: Values, name: str) -> torch.Tensor:
    return vector(values[name], TRITON, STORED[values["itemsize"]])


def _weight(values: Values, name: str) -> torch.Tensor:
    assert values[name].format is Format.PLAIN
    weight: torch.Tensor = values[name].numbers[0].to(launch.device())
    return weight


def _linear(values: Values) -> Call:
    x, weight, out = _tensor(values, "x"), _weight(values, "weight"), STORED[values["out"]]
    return lambda: {"y": F.linear(x, weight).to(out)}


def _mlp(values: Values) -> Call:
    x = _tensor(values, "x")
    gate_up, down = _weight(values, "gate_up"), _weight(values, "down")

    def call() -> dict[str, torch.Tensor]:
        gate, up = F.linear(x, gate_up).chunk(2, 1)
        hidden = F.silu(gate.clamp(max=LIMIT)) * up.clamp(-LIMIT, LIMIT)
        return {"y": F.linear(hidden, down)}

    return call


def _rms_norm(values: Values) -> Call:
    """Without padding, which no library's norm knows of."""
    assert values["count"] == values["x"].shape[1]
    x = _tensor(values, "x")
    weight = vector(values["weight"], TRITON).to(x.dtype)
    return lambda: {"y": F.rms_norm(x, (x.shape[1],), weight, 1e-5)}


def _layer_norm(values: Values) -> Call:
    x = _tensor(values, "x")
    weight, bias = (vector(values[name], TRITON).to(x.dtype) for name in ("weight", "bias"))
    return lambda: {"y": F.layer_norm(x, (x.shape[1],), weight, bias, 1e-6)}


def _pack(values: Values) -> Call:
    memory = vector(values["memory"], TRITON, torch.uint8)
    pages = vector(values["sources"], TRITON, torch.int64)
    return lambda: {"packed": memory.index_select(1, pages)}


def _delta(values: Values, end: int) -> tuple[torch.Tensor, ...] | None:
    """q, k, v, log-decays [end, H, D] and beta [end, H] of the delta rule, in bfloat16 but g."""
    heads, dim = values["state"].shape[-3], values["state"].shape[-1]
    if values["itemsize"] != 2:
        return None
    qkv = vector(values["qkv"][:end], TRITON, torch.bfloat16).view(end, 3, heads, dim)
    g = vector(values["decay"][:end], TRITON).view(end, heads, dim)
    return (*(x.contiguous() for x in qkv.unbind(1)), g, vector(values["beta"][:end], TRITON))


def _fla_chunk(values: Values) -> Call | None:
    fla = importlib.import_module("fla.ops.kda")
    given = _delta(values, values["rows"])
    if given is None:
        return None
    q, k, v, g, beta = (x[None] for x in given)
    state = vector(values["state"][None], TRITON)

    def call() -> dict[str, torch.Tensor]:
        o, last = fla.chunk_kda(
            q, k, v, g, beta.to(q.dtype), initial_state=state, output_final_state=True,
            use_qk_l2norm_in_kernel=True, safe_gate=True, lower_bound=-5.0,
        )  # fmt: skip
        return {"o": o[0], "state": last[0]}

    return call


def _fla_step(values: Values) -> Call | None:
    fla = importlib.import_module("fla.ops.kda")
    given = _delta(values, len(values["qkv"]))
    if given is None:
        return None
    q, k, v, g, beta = (x[:, None] for x in given)
    state = vector(values["state"], TRITON)

    def call() -> dict[str, torch.Tensor]:
        o, last = fla.fused_recurrent_kda(
            q, k, v, g, beta.to(q.dtype), initial_state=state, output_final_state=True,
            use_qk_l2norm_in_kernel=True,
        )  # fmt: skip
        return {"o": o[:, 0], "state": last}

    return call


def _flash_kda(values: Values) -> Call | None:
    """It takes gates and betas before their sigmoids, which are undone here."""
    flash = importlib.import_module("flash_kda")
    given = _delta(values, values["rows"])
    if given is None or given[0].shape[2] != 128:
        return None
    q, k, v, g, beta = (x[None] for x in given)
    raw = torch.special.logit(g / -5.0, 1e-6).to(q.dtype)
    logits = torch.special.logit(beta, 1e-6).to(q.dtype)
    heads, dim = q.shape[2:]
    factors = torch.zeros(heads, device=q.device)
    biases = torch.zeros(heads, dim, device=q.device)
    state = vector(values["state"][None], TRITON).transpose(2, 3).contiguous()

    def call() -> dict[str, torch.Tensor]:
        o, last = torch.empty_like(v), torch.empty_like(state)
        flash.fwd(q, k, v, raw, logits, dim**-0.5, o, factors, biases, -5.0, state, last)
        return {"o": o[0], "state": last[0].transpose(1, 2)}

    return call


def _flash_mla(values: Values) -> Call | None:
    """Lists are whole blocks of 128, heads 64 of 512 in bfloat16; 32 heads get company."""
    flash = importlib.import_module("flash_mla")
    rows, heads, width = values["queries"].shape
    if heads not in (32, 64) or (width, values["itemsize"], values["query_itemsize"]) != (
        512,
        2,
        2,
    ):
        return None
    queries = vector(values["queries"], TRITON, torch.bfloat16)
    queries = torch.cat([queries, queries.new_zeros(rows, 64 - heads, width)], 1)
    latents = vector(values["latents"], TRITON, torch.bfloat16).view(-1, 1, width)
    slots = np.where(values["seen"], values["slots"], -1)
    slots = np.pad(slots, ((0, 0), (0, -slots.shape[1] % 128)), constant_values=-1)
    lists = indices(slots)[:, None]
    return lambda: {"o": flash.flash_mla_sparse_fwd(queries, latents, lists, 1.0)[0][:, :heads]}


PEERS: tuple[tuple[str, str, str, Make], ...] = (
    ("linear.window.plain", "torch (cuBLAS)", "torch", _linear),
    ("linear.prompt.plain", "torch (cuBLAS)", "torch", _linear),
    ("mlp.window.plain", "torch", "torch", _mlp),
    ("mlp.prompt.plain", "torch", "torch", _mlp),
    ("rms_norm", "torch", "torch", _rms_norm),
    ("layer_norm", "torch", "torch", _layer_norm),
    ("page_move.pack", "torch", "torch", _pack),
    ("kda.chunk", "fla (Triton)", "fla", _fla_chunk),
    ("kda.chunk", "FlashKDA", "flash_kda", _flash_kda),
    ("kda.step", "fla (Triton)", "fla", _fla_step),
    ("latent_attention.selected", "FlashMLA", "flash_mla", _flash_mla),
    ("latent_attention.selected_prompt", "FlashMLA", "flash_mla", _flash_mla),
)
"""(the operator's name, the peer's name, its package, what makes its call)"""
