"""The optimizer: orthogonalised momentum for the matrices, Adam for the rest.

Owns both update rules and their state. Knows no model but the names of its parameters. Matrices of
one shape are updated together, stacked, since each is too small to keep a GPU busy.

Muon: the momentum's singular values are driven to one by a quintic iteration, and the update is
scaled to 0.2 sqrt(longer side), the size that an Adam step has, so that both use one rate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_MATRICES = re.compile(
    r"\.(self_attn\.(q|k|v|o|q_a|q_b|f_a|f_b|g_a|g_b|kv_b)_proj\.weight"
    r"|self_attn\.kv_a_proj_with_mqa\.weight|eh_proj\.weight"
    r"|mlp\.(shared_experts\.)?(gate|up|down)_proj\.weight"
    r"|mlp\.experts\.(gate_up|down)_proj)$"
)
_DECAY = 0.05
_MOMENTUM = 0.95


def orthogonal(x: Tensor, steps: int = 5) -> Tensor:
    """Nearly the orthogonal factor of each [.., rows, columns] matrix, in bfloat16 on a GPU."""
    y = x.bfloat16() if x.is_cuda else x.clone()
    tall = y.shape[-2] > y.shape[-1]
    if tall:
        y = y.mT
    y = y / (y.norm(dim=(-2, -1), keepdim=True) * 1.02 + 1e-7)
    for _ in range(steps):
        a = y @ y.mT
        y = 3.4445 * y + (-4.7750 * a + 2.0315 * (a @ a)) @ y
    made: Tensor = y.mT if tall else y
    return made.to(x.dtype)


class Optimizer:
    """Updates `params` in place from their gradients."""

    def __init__(self, params: Mapping[str, Tensor], matrices: bool = True) -> None:
        """`matrices` false leaves everything to Adam."""
        learned = {name: p for name, p in params.items() if p.requires_grad}
        self._groups: dict[tuple[int, ...], list[Tensor]] = {}
        rest: dict[bool, list[Tensor]] = {True: [], False: []}
        for name, p in learned.items():
            if matrices and _MATRICES.search(name):
                self._groups.setdefault(tuple(p.shape), []).append(p)
            else:
                rest[p.ndim > 1].append(p)
        self._momentum = {
            shape: torch.zeros(len(group), *shape, device=group[0].device)
            for shape, group in self._groups.items()
        }
        fused = next(iter(learned.values())).is_cuda
        self._adam = torch.optim.AdamW(
            [
                {"params": rest[True], "weight_decay": _DECAY},
                {"params": rest[False], "weight_decay": 0.0},
            ],
            betas=(0.9, 0.98),
            fused=fused,
        )
        self._all = list(learned.values())

    def step(self, rate: float) -> Tensor:
        """One update; the norm of the gradient before it was clipped to one."""
        norm = torch.nn.utils.clip_grad_norm_(self._all, 1.0, foreach=True)
        for group in self._adam.param_groups:
            group["lr"] = rate
        self._adam.step()
        for shape, members in self._groups.items():
            self._matrices(members, self._momentum[shape], rate)
        for p in self._all:
            p.grad = None
        return norm

    @torch.no_grad()
    def _matrices(self, members: list[Tensor], momentum: Tensor, rate: float) -> None:
        gradient = torch.stack([p.grad for p in members if p.grad is not None])
        momentum.lerp_(gradient, 1 - _MOMENTUM)
        update = orthogonal(gradient.lerp(momentum, _MOMENTUM))
        size = 0.2 * max(update.shape[-2:]) ** 0.5
        torch._foreach_mul_(members, 1 - rate * _DECAY)
        torch._foreach_add_(members, list(update.unbind(0)), alpha=-rate * size)

    def state(self) -> dict[str, Any]:
        return {"adam": self._adam.state_dict(), "momentum": list(self._momentum.values())}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._adam.load_state_dict(state["adam"])
        for mine, saved in zip(self._momentum.values(), state["momentum"], strict=True):
            mine.copy_(saved)
