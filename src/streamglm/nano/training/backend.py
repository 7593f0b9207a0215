"""Which implementation of each operation runs: plain torch, or compiled code and GPU kernels.

Owns the choice. Knows no model. Both backends compute the same formulas; the plain one is the
reference and runs anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from streamglm.nano.training import ops

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Segments:
    """Where conversations lie in a flat row: `edges` are their starts and the end of the row."""

    edges: Tensor
    """int64 on the device, [conversations + 1]."""
    edges_cpu: Tensor
    """The same on the host, so that no launch waits for the device."""


class Delta(Protocol):
    """The gated delta rule over a flat row."""

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, f: Tensor, beta: Tensor, a_log: Tensor,
        dt_bias: Tensor, bound: float, segments: Segments, final: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """q, k, v and the raw gate f are [T, H, K], beta [T, H]. Returns [T, H, V] and, when
        `final`, the state after each conversation, float32 [conversations, H, K, V]."""
        ...


@dataclass(frozen=True, slots=True)
class Backend:
    """The operations that differ."""

    dtype: torch.dtype
    compiled: Wrap
    """Wraps a function whose shapes never change."""
    flexible: Wrap
    """Wraps a function whose shapes change from phase to phase."""
    sinkhorn: Callable[[Tensor, float, int], Tensor]
    attend: Callable[[Tensor, Tensor, Tensor, Tensor, float, int], Tensor]
    index_scores: Callable[[Tensor, Tensor, Tensor, Tensor, int, float], Tensor]
    delta: Delta


def plain() -> Backend:
    """float32 torch, nothing compiled."""
    return Backend(
        dtype=torch.float32,
        compiled=lambda function: function,
        flexible=lambda function: function,
        sinkhorn=ops.sinkhorn,
        attend=ops.attend,
        index_scores=ops.index_scores,
        delta=_plain_delta,
    )


def _plain_delta(
    q: Tensor, k: Tensor, v: Tensor, f: Tensor, beta: Tensor, a_log: Tensor, dt_bias: Tensor,
    bound: float, segments: Segments, final: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    g = ops.log_decay(f, a_log, dt_bias, bound)
    out, states = ops.delta_rule(q, k, v, g, beta, segments.edges)
    return out, states if final else None


def cuda() -> Backend:
    """bfloat16 on one GPU: inductor for pointwise code, this package's kernels, and
    flash-linear-attention's chunked delta rule (the `train` extra)."""
    os.environ.setdefault("TRITON_CACHE_AUTOTUNING", "1")
    _few_configurations()
    torch._dynamo.config.recompile_limit = 64  # one piece a phase of the course, and a few more
    from fla.ops.kda import chunk_kda  # type: ignore[import-not-found, import-untyped, unused-ignore]

    from streamglm.nano.training import gpu

    def delta(
        q: Tensor, k: Tensor, v: Tensor, f: Tensor, beta: Tensor, a_log: Tensor, dt_bias: Tensor,
        bound: float, segments: Segments, final: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        out, states = chunk_kda(
            *(x.unsqueeze(0) for x in (q, k, v, f, beta)),
            A_log=a_log,
            dt_bias=dt_bias,
            use_qk_l2norm_in_kernel=True,
            use_gate_in_kernel=True,
            safe_gate=True,
            lower_bound=bound,
            cu_seqlens=segments.edges,
            cu_seqlens_cpu=segments.edges_cpu,
            output_final_state=final,
        )
        return out.squeeze(0), states

    return Backend(
        dtype=torch.bfloat16,
        compiled=lambda function: torch.compile(function, dynamic=False),
        flexible=lambda function: torch.compile(function, dynamic=True),
        sinkhorn=gpu.sinkhorn,
        attend=gpu.attend,
        index_scores=gpu.index_scores,
        delta=delta,
    )


def _few_configurations(most: int = 4) -> None:
    """Cut the tuning of flash-linear-attention's kernels, which try dozens of configurations each,
    to a few spread over the list: minutes of compiling for a few percent otherwise."""
    from triton.runtime import autotuner

    if getattr(autotuner.Autotuner, "_streamglm_few", False):
        return
    original = autotuner.Autotuner.__init__

    def narrowed(
        self: Any, fn: Any, arg_names: Any, configs: Any, *rest: Any, **named: Any
    ) -> None:
        stride = max(1, len(configs) // most)
        original(self, fn, arg_names, list(configs)[stride // 2 :: stride][:most], *rest, **named)

    autotuner.Autotuner.__init__ = narrowed
    autotuner.Autotuner._streamglm_few = True
