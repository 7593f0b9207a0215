"""Peers get the contracts' tensors as their own documentation has them: stand-ins built from it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bench import kernel_peers, kernels
from bench.record import Void
from streamglm.kernels import OPS, launch
from streamglm.kernels.contract import Contract


def rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """q, k, v, g [B, T, H, D], beta [B, T, H], state [B, H, K, V] -> o, last state."""
    q, k, v, g, beta = (x.float() for x in (q, k, v, g, beta))
    q = torch.nn.functional.normalize(q, dim=-1) * q.shape[-1] ** -0.5
    k = torch.nn.functional.normalize(k, dim=-1)
    outs = []
    for t in range(q.shape[1]):
        state = state * g[:, t, :, :, None].exp()
        delta = beta[:, t, :, None] * (v[:, t] - torch.einsum("bhkv,bhk->bhv", state, k[:, t]))
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], delta)
        outs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]))
    return torch.stack(outs, 1), state


def fla_kda(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    assert options["use_qk_l2norm_in_kernel"]
    assert options["output_final_state"]
    return rule(q, k, v, g, beta, options["initial_state"])


def flash_kda(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    scale: float,
    out: torch.Tensor,
    factors: torch.Tensor,
    biases: torch.Tensor,
    bound: float,
    first: torch.Tensor,
    last: torch.Tensor,
) -> None:
    """Gates and betas before their sigmoids; states [B, H, V, K]."""
    assert scale == q.shape[-1] ** -0.5
    assert all(x.is_contiguous() for x in (q, k, v, g, beta, first))
    decay = bound * torch.sigmoid(factors.exp()[:, None] * (g.float() + biases))
    o, state = rule(q, k, v, decay, torch.sigmoid(beta.float()), first.transpose(2, 3))
    out.copy_(o)
    last.copy_(state.transpose(2, 3))


def flash_mla(
    q: torch.Tensor, kv: torch.Tensor, lists: torch.Tensor, scale: float
) -> tuple[torch.Tensor, None, None]:
    """q [M, H, D], kv [N, 1, D], lists [M, 1, L] whole blocks of 128, below 0: none."""
    assert lists.shape[2] % 128 == 0
    outs = []
    for row, one in zip(q.float(), lists[:, 0], strict=True):
        keys = kv[one[one >= 0].long(), 0].float()
        outs.append(torch.softmax(row @ keys.T * scale, -1) @ keys)
    return torch.stack(outs).to(q.dtype), None, None


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    fla = SimpleNamespace(chunk_kda=fla_kda, fused_recurrent_kda=fla_kda)
    for name, module in (
        ("fla", SimpleNamespace()),
        ("fla.ops", SimpleNamespace()),
        ("fla.ops.kda", fla),
        ("flash_kda", SimpleNamespace(fwd=flash_kda)),
        ("flash_mla", SimpleNamespace(flash_mla_sparse_fwd=flash_mla)),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    found = importlib.util.find_spec
    there: Callable[[str], Any] = lambda name: True if name in sys.modules else found(name)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", there)
    monkeypatch.setattr(launch, "device", lambda: torch.device("cpu"))
    monkeypatch.setattr(Contract, "run", property(lambda op: lambda values, form: op.exact(values)))


def named(name: str) -> Contract:
    return next(op for op in OPS if op.name == name)


CHUNK = {"N": 64, "H": 2, "D": 128, "ROWS": 40, "DECAY": 2, "SAME": 0, "BYTES": 2}
LISTS = {"M": 2, "H": 64, "D": 512, "S": 16, "L": 48, "CHUNK": 48, "BYTES": 2, "QUERY": 2}
HALF = {**LISTS, "H": 32}
SIZES: dict[str, tuple[dict[str, int], list[str]]] = {
    "kda.chunk": (CHUNK, ["fla (Triton)", "FlashKDA"]),
    "kda.step": ({"N": 3, "H": 2, "D": 16, "BYTES": 2}, ["fla (Triton)"]),
    "latent_attention.selected": (LISTS, ["FlashMLA"]),
    "latent_attention.selected_prompt": (HALF, ["FlashMLA"]),
}


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("name", SIZES)
def test_a_peer_computes_what_the_contract_says(name: str) -> None:
    """Red with a transposed state, with q and v exchanged, or with the list's filler counted."""
    op, (sizes, peers) = named(name), SIZES[name]
    values = op.inputs(sizes, np.random.default_rng(3))
    assert [peer for peer, _ in kernels._peers(op, values)] == peers


@pytest.mark.usefixtures("stand_ins")
def test_a_peer_that_computes_something_else_is_void(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["fla.ops.kda"], "fused_recurrent_kda", broken)
    op = named("kda.step")
    values = op.inputs(SIZES["kda.step"][0], np.random.default_rng(3))
    with pytest.raises(Void, match="fla"):
        list(kernels._peers(op, values))


def broken(*given: torch.Tensor, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    o, state = fla_kda(*given[:5], **options)
    return o, state.transpose(2, 3)


@pytest.mark.usefixtures("stand_ins")
def test_a_peer_without_such_sizes_is_left_out() -> None:
    op = named("latent_attention.selected")
    values = op.inputs({**LISTS, "H": 22}, np.random.default_rng(3))
    assert list(kernels._peers(op, values)) == []
    assert [name for name, _ in kernel_peers.of(op.name)] == ["FlashMLA"]
