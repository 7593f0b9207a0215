"""The model's arithmetic in plain torch, with gradients.

Owns every formula that is not a large matrix product. Each function is pure: tensors in, tensors
out. Written for a flat row of tokens in which conversations lie one behind the other; `start[t]`
is where token t's conversation begins, always a multiple of 16. On a GPU the pointwise ones are
compiled and the slow ones replaced by `gpu`'s kernels; here they are the reference.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

POOL = 4


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm with float32 statistics; the result has x's dtype."""
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (scaled * weight).to(x.dtype)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """A product in x's dtype, whatever the weight is kept in."""
    return F.linear(x, weight.to(x.dtype))


def by_head(x: Tensor, heads: int) -> Tensor:
    """[.., heads * n] as [.., heads, n]."""
    return x.view(*x.shape[:-1], heads, -1)


def by_pool(x: Tensor) -> Tensor:
    """[T, D] as [T / 4, 4, D]."""
    return x.view(-1, POOL, x.shape[-1])


# ---- hyper-connections


def sinkhorn(x: Tensor, eps: float, iterations: int) -> Tensor:
    """Softmax over the last axis of [tokens, n, n] float32, then columns and rows normalised in
    turn; ends on columns."""
    y = torch.softmax(x, -1) + eps
    y = y / (y.sum(-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        y = y / (y.sum(-1, keepdim=True) + eps)
        y = y / (y.sum(-2, keepdim=True) + eps)
    return y


def coefficients(
    streams: Tensor, fn: Tensor, base: Tensor, scale: Tensor, norm_eps: float, hc_eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Pre [T, n], post [T, n] and comb logits [T, n, n] of [T, n, D] streams, float32."""
    count = streams.shape[1]
    flat = streams.flatten(1)
    size = torch.rsqrt(flat.float().square().mean(-1, keepdim=True) + norm_eps)
    raw = linear(flat, fn).float() * size
    pre, post, comb = torch.split(raw, [count, count, count * count], -1)
    pre_base, post_base, comb_base = torch.split(base, [count, count, count * count])
    return (
        torch.sigmoid(pre * scale[0] + pre_base) + hc_eps,
        2 * torch.sigmoid(post * scale[1] + post_base),
        by_head(comb * scale[2] + comb_base, count),
    )


def collapse(streams: Tensor, pre: Tensor) -> Tensor:
    """The block's input: the streams' weighted sum, [T, D]."""
    return (pre.unsqueeze(-1) * streams).sum(1).to(streams.dtype)


def mix(streams: Tensor, post: Tensor, comb: Tensor, y: Tensor) -> Tensor:
    """New streams: out_k = post_k y + sum_j comb_jk h_j."""
    wide = streams.float()
    count = streams.shape[1]
    added = post.unsqueeze(-1) * y.float().unsqueeze(1)
    for j in range(count):
        added = added + comb[:, j].unsqueeze(-1) * wide[:, j].unsqueeze(1)
    return added.to(streams.dtype)


# ---- linear attention


def short_conv(x: Tensor, weight: Tensor, place: Tensor) -> Tensor:
    """Causal convolution [T, C] with [C, width] taps, oldest first, then SiLU. `place` [T] is a
    token's position in its conversation; what lies before it is zero."""
    width = weight.shape[1]
    taps = weight.float()
    out = x.float() * taps[:, width - 1]
    for back in range(1, width):
        shifted = F.pad(x, (0, 0, back, 0))[: x.shape[0]].float()
        shifted = torch.where((place >= back).unsqueeze(-1), shifted, 0.0)
        out = out + shifted * taps[:, width - 1 - back]
    return F.silu(out).to(x.dtype)


def log_decay(f: Tensor, a_log: Tensor, dt_bias: Tensor, bound: float) -> Tensor:
    """Per-channel log decay in (bound, 0), float32, of [T, H, K]."""
    heads, dim = f.shape[1:]
    return bound * torch.sigmoid(
        a_log.exp().view(heads, 1) * (f.float() + dt_bias.view(heads, dim))
    )


def unit(x: Tensor) -> Tensor:
    """x / sqrt(sum x^2 + 1e-6) over the last axis, float32."""
    wide = x.float()
    return wide / torch.sqrt(wide.square().sum(-1, keepdim=True) + 1e-6)


def delta_step(
    state: Tensor, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """One token of the gated delta rule: the new state [.., H, K, V] and the output [.., H, V],
    float32. Decay comes first, the output is read after the update."""
    key = unit(k)
    state = state * g.exp().unsqueeze(-1)
    error = (v.float() - torch.einsum("...kv,...k->...v", state, key)) * beta.float().unsqueeze(-1)
    state = state + key.unsqueeze(-1) * error.unsqueeze(-2)
    return state, torch.einsum("...kv,...k->...v", state, unit(q) * q.shape[-1] ** -0.5)


def delta_rule(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, edges: Tensor
) -> tuple[Tensor, Tensor]:
    """The rule token by token, [T, H, K] with `beta` [T, H], all conversations at once; the
    outputs, and the state at the end of each conversation. Slow: for tests and small runs."""
    begin, length = edges[:-1], edges.diff()
    state = torch.zeros(len(begin), q.shape[1], q.shape[2], v.shape[2], device=q.device)
    reads = []
    for t in range(int(length.max())):
        inside = t < length
        at = torch.where(inside, begin + t, begin)
        new, read = delta_step(state, q[at], k[at], v[at], g[at], beta[at])
        state = torch.where(inside.view(-1, 1, 1, 1), new, state)
        reads.append(read)
    place = torch.arange(q.shape[0], device=q.device) - torch.repeat_interleave(begin, length)
    owner = torch.repeat_interleave(torch.arange(len(begin), device=q.device), length)
    return torch.stack(reads)[place, owner].to(q.dtype), state


def gated_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm times the gate's sigmoid, in float32; the result has x's dtype."""
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight
    return (scaled * torch.sigmoid(gate.float())).to(x.dtype)


# ---- latent attention


def pool_keys(k: Tensor, gate: Tensor, ape: Tensor, empty: Tensor | None) -> Tensor:
    """Index keys of pools of four tokens, [T / 4, D]: a softmax a channel over the four. Tokens
    for which `empty` holds take no part."""
    logits = by_pool(gate.float()) + ape.float()
    if empty is not None:
        logits = logits.masked_fill(empty.view(-1, POOL, 1), float("-inf"))
    share = torch.softmax(logits, 1)
    return (share.to(k.dtype) * by_pool(k)).sum(1)


def index_scores(
    q: Tensor, weights: Tensor, pools: Tensor, start: Tensor, width: int, scale: float
) -> Tensor:
    """Scores [T, width] of the pools of each token's conversation; -inf where a pool is not yet
    complete, or not there."""
    scores = torch.full((q.shape[0], width), float("-inf"), device=q.device)
    last = torch.arange(width, device=q.device) * POOL + POOL - 1
    begins = torch.unique(start).tolist()
    for begin, end in pairwise([*begins, q.shape[0]]):
        keys = pools[begin // POOL : end // POOL][:width].float()
        raw = torch.einsum("thd,pd->thp", q[begin:end].float(), keys) * scale
        own = (weights[begin:end].unsqueeze(-1) * F.relu(raw)).sum(1)
        seen = last[: len(keys)] <= torch.arange(end - begin, device=q.device).unsqueeze(-1)
        scores[begin:end, : len(keys)] = own.masked_fill(~seen, float("-inf"))
    return scores


def choose(scores: Tensor, start: Tensor, count: int) -> Tensor:
    """The `count` best pools of each token as places in the flat row of pools, int32 [T, count];
    -1 where there are fewer."""
    count = min(count, scores.shape[1])
    best = torch.topk(scores, count, -1, sorted=False)
    pool = (start // POOL).unsqueeze(-1) + best.indices
    return pool.masked_fill(best.values == float("-inf"), -1).int()


def choose_all(start: Tensor, count: int) -> Tensor:
    """Every complete pool of each token, if a conversation has `count` at most."""
    pool = (start // POOL).unsqueeze(-1) + torch.arange(count, device=start.device)
    token = torch.arange(start.shape[0], device=start.device).unsqueeze(-1)
    return pool.masked_fill(pool * POOL + POOL - 1 > token, -1).int()


def attend(
    q: Tensor, c: Tensor, start: Tensor, chosen: Tensor, scale: float, first_row: int
) -> Tensor:
    """Attention of absorbed queries [T, H, W] over latents [T, W]: the chosen pools' tokens and
    those of the unfinished pool. The first `first_row` tokens of a conversation are not seen."""
    token = torch.arange(q.shape[0], device=q.device).unsqueeze(-1)
    slot = torch.arange(POOL, device=q.device)
    keys = (
        (chosen.unsqueeze(-1) * POOL + slot)
        .flatten(1)
        .masked_fill(chosen.repeat_interleave(POOL, -1) < 0, -1)
    )
    tail = (token + 1) // POOL * POOL + slot
    keys = torch.cat([keys, tail.masked_fill(tail > token, -1)], -1)
    seen = (keys >= start.unsqueeze(-1) + first_row) & (keys >= 0)
    rows = c[keys.clamp(min=0)]
    scores = torch.einsum("thw,tkw->thk", q.float(), rows.float()) * scale
    scores = scores.masked_fill(~seen.unsqueeze(1), float("-inf"))
    share = torch.nan_to_num(torch.softmax(scores, -1))
    return torch.einsum("thk,tkw->thw", share, rows.float()).to(q.dtype)


# ---- experts


def route(x: Tensor, gate: Tensor, bias: Tensor, count: int, scaling: float) -> Tensor:
    """Weights of the experts, [T, E] float32, zero for all but the best `count`."""
    scores = torch.sigmoid(F.linear(x.float(), gate.float()))
    left = (scores + bias).detach()
    chosen = torch.zeros_like(left, dtype=torch.bool)
    for _ in range(count):
        best = (left == left.amax(-1, keepdim=True)) & ~chosen
        chosen = chosen | best
        left = left.masked_fill(best, float("-inf"))
    kept = torch.where(chosen, scores, 0.0)
    return kept / (kept.sum(-1, keepdim=True) + 1e-20) * scaling


def swiglu(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    """SiLU of the gate, clipped from above, times the clipped other half."""
    return F.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)


def experts(x: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor, limit: float) -> Tensor:
    """All experts on all tokens, weighted by [T, E]; at this size cheaper than sorting tokens."""
    count, double, hidden = gate_up.shape
    both = by_head(linear(x, gate_up.reshape(count * double, hidden)), count)
    gate, up = both.chunk(2, -1)
    inner = swiglu(gate, up, limit) * weights.to(x.dtype).unsqueeze(-1)
    return inner.flatten(1) @ down.to(x.dtype).transpose(1, 2).reshape(-1, hidden)
