"""Nano's forward pass with gradients, over a flat row of conversations.

Owns the order of operations and the losses: next token, the token after it (the MTP layer), and
the indexer's distance from attention. Knows no optimizer and no data. Parameters are a plain
dictionary under the server's names (`weights.layout`), so a checkpoint is a rename away.

Gradients do not pass from the indexer to the model: the indexer reads detached inputs and learns
from its own loss, and selection is not differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from streamglm.model.spec import LayerKind, ModelSpec
from streamglm.nano.training import ops
from streamglm.nano.training.backend import Backend, Segments

Params = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Row:
    """A flat row of conversations on the device."""

    ids: Tensor
    """int64 [T]."""
    targets: Tensor
    """int64 [T]: the next token of the same conversation, where weight is above zero."""
    weight: Tensor
    """float32 [T]."""
    start: Tensor
    """int32 [T]: where the token's conversation begins."""
    tiles: Tensor
    """int64 [n]: tiles of 16 tokens on which the indexer is compared with attention."""
    segments: Segments
    longest: int
    """Upper bound of a conversation's length, a multiple of 256."""


@dataclass(frozen=True, slots=True)
class Selection:
    """How attention selects: `pools` of four tokens at most, and how: "all" takes every pool (of
    conversations that short), "index" the indexer's best, "random" draws."""

    pools: int
    by: str = "index"


@dataclass(slots=True)
class Outcome:
    """What a forward pass gives. `best` and `drafted` are the likeliest next tokens of the trunk
    and of the MTP layer, [T]."""

    loss: Tensor
    next_token: Tensor
    after_next: Tensor
    index: Tensor
    best: Tensor
    drafted: Tensor
    loads: dict[str, Tensor]


class Net:
    """The model as functions over `params`."""

    def __init__(self, spec: ModelSpec, params: Params, backend: Backend) -> None:
        self.spec = spec
        self.params = params
        self.backend = backend
        wrap: Callable[[Any], Any] = backend.compiled
        self.enter = wrap(_enter)
        self.step = wrap(_step)
        self.leave = wrap(_leave)
        self.kda_in = wrap(_kda_in)
        self.kda_out = wrap(_kda_out)
        self.latent_in = wrap(_latent_in)
        self.latent_out = wrap(_latent_out)
        self.index_in = wrap(_index_in)
        loosely: Callable[[Any], Any] = backend.flexible
        self.index_loss = loosely(_index_loss)
        self.dense = wrap(_dense)
        self.moe = wrap(_moe)
        self.draft_in = wrap(_draft_in)
        self.head = wrap(_head)
        self.watch: Callable[[str, tuple[Tensor | None, ...]], None] | None = None
        """Called with an attention layer's name and what a decoder has to keep of it: input and
        final states of a KDA layer, latents and pool keys of the others."""
        self.loads: dict[str, Tensor] = {}
        self.index_losses: list[Tensor] = []

    def under(self, stem: str) -> dict[str, Tensor]:
        """The parameters below a name, by what is left of it."""
        return {n[len(stem) :]: p for n, p in self.params.items() if n.startswith(stem)}

    def hidden(self, row: Row, selection: Selection) -> Tensor:
        """The trunk's output after the final norm, [T, D]."""
        spec, backend = self.spec, self.backend
        place = _place(row)
        embedded = F.embedding(row.ids, self.params["embed_tokens.weight"]).to(backend.dtype)
        streams = embedded.unsqueeze(1).expand(-1, spec.streams, -1).contiguous()
        sites = self.sites()
        streams, x, post, logits = self.enter(streams, *sites[0], spec.rms_norm_eps, spec.hc_eps)
        for number, following in enumerate([*sites[1:], None]):
            comb = backend.sinkhorn(logits, spec.hc_eps, spec.sinkhorn_iters)
            y = self._block(number, x, row, place, selection)
            if following is None:
                streams = self.leave(streams, post, comb, y)
            else:
                streams, x, post, logits = self.step(
                    streams, post, comb, y, *following, spec.rms_norm_eps, spec.hc_eps
                )
        return ops.rms_norm(streams, self.params["norm.weight"], spec.rms_norm_eps)

    def sites(self) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Two a layer: the hyper-connection's tensors and the norm behind it."""
        sites = []
        for layer in range(len(self.spec.layers)):
            p = self.under(f"layers.{layer}.")
            for site, norm in (("attn", "input"), ("ffn", "post_attention")):
                sites.append(
                    (
                        p[f"hc_{site}_fn"],
                        p[f"hc_{site}_base"],
                        p[f"hc_{site}_scale"],
                        p[f"{norm}_layernorm.weight"],
                    )
                )
        return sites

    def _block(
        self, number: int, x: Tensor, row: Row, place: Tensor, selection: Selection
    ) -> Tensor:
        layer = number // 2
        if number % 2:
            return self.mlp(f"layers.{layer}.mlp.", x, self.spec.sparse_mlp[layer])
        stem = f"layers.{layer}.self_attn."
        if self.spec.layers[layer] is LayerKind.KDA:
            return self._kda(stem, x, row, place)
        return self._latent(stem, x, row, place, selection, 0)

    def _kda(self, stem: str, x: Tensor, row: Row, place: Tensor) -> Tensor:
        p, spec = self.under(stem), self.spec
        q, k, v, f, beta, gate = self.kda_in(x, place, p, spec.kda_heads)
        out, states = self.backend.delta(
            q, k, v, f, beta, p["A_log"], p["dt_bias"], spec.gate_lower_bound, row.segments,
            final=self.watch is not None,
        )  # fmt: skip
        if self.watch is not None:
            self.watch(stem, (x, states))
        result: Tensor = self.kda_out(out, gate, p, spec.rms_norm_eps)
        return result

    def _latent(
        self, stem: str, x: Tensor, row: Row, place: Tensor, selection: Selection, first_row: int
    ) -> Tensor:
        p, spec, backend = self.under(stem), self.spec, self.backend
        scale = spec.nope_dim**-0.5
        resid, query, latent = self.latent_in(x, p, spec.heads, spec.nope_dim, spec.rms_norm_eps)
        empty = place < first_row if first_row else None
        index = self.under(stem + "indexer.")
        iq, weights, pools = self.index_in(
            x.detach(), resid.detach(), index, spec.index_heads, empty
        )
        index_scale = spec.index_dim**-0.5
        if self.watch is not None:
            self.watch(stem, (latent, pools))
        with torch.no_grad():
            chosen = self._choose(iq, weights, pools, row, selection, index_scale)
        if row.tiles.numel() and torch.is_grad_enabled():
            self.index_losses.append(
                self.index_loss(
                    iq, weights, pools, query.detach(), latent.detach(), row.start, row.tiles,
                    row.longest, index_scale, scale, first_row,
                )
            )  # fmt: skip
        out = backend.attend(query, latent, row.start, chosen, scale, first_row)
        result: Tensor = self.latent_out(out, p, spec.nope_dim)
        return result

    def _choose(
        self,
        q: Tensor,
        weights: Tensor,
        pools: Tensor,
        row: Row,
        selection: Selection,
        scale: float,
    ) -> Tensor:
        if selection.by == "all":
            return ops.choose_all(row.start, selection.pools)
        width = row.longest // ops.POOL
        scores = self.backend.index_scores(q, weights, pools, row.start, width, scale)
        if selection.by == "random":
            noise = torch.rand_like(scores)
            scores = torch.where(scores == float("-inf"), scores, noise)
        return ops.choose(scores, row.start, selection.pools)

    def mlp(self, stem: str, x: Tensor, sparse: bool) -> Tensor:
        p, spec = self.under(stem), self.spec
        y: Tensor
        if not sparse:
            y = self.dense(x, p, spec.swiglu_limit)
            return y
        y, load = self.moe(
            x, p, spec.num_experts_per_tok, spec.routed_scaling_factor, spec.swiglu_limit
        )
        self.loads[stem + "gate.e_score_correction_bias"] = load
        return y

    def draft_hidden(self, row: Row, hidden: Tensor, selection: Selection) -> Tensor:
        """The MTP layer's output, [T, D]. Row i pairs the trunk's output at i - 1 with the token
        at i and speaks of the token at i + 1; a conversation's first row stays empty."""
        spec = self.spec
        stem = f"layers.{len(spec.layers)}."
        place = _place(row)
        p = self.under(stem)
        embedded = F.embedding(row.ids, self.params["embed_tokens.weight"]).to(hidden.dtype)
        x, inner = self.draft_in(embedded, hidden, place, p, spec.rms_norm_eps)
        x = x + self._latent(stem + "self_attn.", inner, row, place, selection, 1)
        inner = ops.rms_norm(x, p["post_attention_layernorm.weight"], spec.rms_norm_eps)
        x = x + self.mlp(stem + "mlp.", inner, True)
        return ops.rms_norm(x, p["shared_head.norm.weight"], spec.rms_norm_eps)

    def outcome(
        self, row: Row, selection: Selection, draft_weight: float, index_weight: float
    ) -> Outcome:
        """Forward pass with all losses. `loss` is what to minimise."""
        self.loads, self.index_losses = {}, []
        head = self.params["lm_head.weight"]
        hidden = self.hidden(row, selection)
        next_token, best = self.head(hidden, head, row.targets, row.weight)
        drafted_hidden = self.draft_hidden(row, hidden, selection)
        behind = torch.where(_place(row) > 0, row.weight, 0.0)
        after_next, drafted = self.head(drafted_hidden, head, row.targets, behind)
        index = (
            torch.stack(self.index_losses).sum() if self.index_losses else next_token.new_zeros(())
        )
        return Outcome(
            loss=next_token + draft_weight * after_next + index_weight * index,
            next_token=next_token.detach(),
            after_next=after_next.detach(),
            index=index.detach(),
            best=best,
            drafted=drafted,
            loads=self.loads,
        )


def _place(row: Row) -> Tensor:
    return torch.arange(row.ids.shape[0], device=row.ids.device) - row.start


# ---- pieces between two kernels; each is compiled as a whole


def _enter(
    streams: Tensor,
    fn: Tensor,
    base: Tensor,
    scale: Tensor,
    norm: Tensor,
    eps: float,
    hc_eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    pre, post, logits = ops.coefficients(streams, fn, base, scale, eps, hc_eps)
    return streams, ops.rms_norm(ops.collapse(streams, pre), norm, eps), post, logits


def _step(
    streams: Tensor, post: Tensor, comb: Tensor, y: Tensor,
    fn: Tensor, base: Tensor, scale: Tensor, norm: Tensor, eps: float, hc_eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    return _enter(ops.mix(streams, post, comb, y), fn, base, scale, norm, eps, hc_eps)


def _leave(streams: Tensor, post: Tensor, comb: Tensor, y: Tensor) -> Tensor:
    return ops.mix(streams, post, comb, y).float().mean(1).to(streams.dtype)


def _kda_in(x: Tensor, place: Tensor, p: Params, heads: int) -> tuple[Tensor, ...]:
    qkv = torch.cat([p["q_proj.weight"], p["k_proj.weight"], p["v_proj.weight"]])
    mixed = ops.short_conv(ops.linear(x, qkv), p["conv1d.weight"], place)
    q, k, v = (ops.by_head(part, heads).contiguous() for part in mixed.chunk(3, -1))
    f = ops.linear(ops.linear(x, p["f_a_proj.weight"]), p["f_b_proj.weight"])
    beta = torch.sigmoid(ops.linear(x, p["b_proj.weight"]).float()).to(x.dtype)
    gate = ops.linear(ops.linear(x, p["g_a_proj.weight"]), p["g_b_proj.weight"])
    return q, k, v, ops.by_head(f, heads), beta, ops.by_head(gate, heads)


def _kda_out(out: Tensor, gate: Tensor, p: Params, eps: float) -> Tensor:
    return ops.linear(
        ops.gated_norm(out, gate, p["o_norm.weight"], eps).flatten(1), p["o_proj.weight"]
    )


def _per_head(weight: Tensor, heads: int, dtype: torch.dtype) -> Tensor:
    """Rows of a weight by head, [heads, rows, columns]."""
    return weight.to(dtype).view(heads, -1, weight.shape[-1])


def _latent_in(
    x: Tensor, p: Params, heads: int, nope: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    resid = ops.rms_norm(ops.linear(x, p["q_a_proj.weight"]), p["q_a_layernorm.weight"], eps)
    latent = ops.rms_norm(
        ops.linear(x, p["kv_a_proj_with_mqa.weight"]), p["kv_a_layernorm.weight"], eps
    )
    query = ops.by_head(ops.linear(resid, p["q_b_proj.weight"]), heads)
    keys = _per_head(p["kv_b_proj.weight"], heads, x.dtype)[:, :nope]
    return resid, torch.einsum("thd,hdw->thw", query, keys), latent


def _latent_out(out: Tensor, p: Params, nope: int) -> Tensor:
    values = _per_head(p["kv_b_proj.weight"], out.shape[1], out.dtype)[:, nope:]
    return ops.linear(torch.einsum("thw,hvw->thv", out, values).flatten(1), p["o_proj.weight"])


def _index_in(
    x: Tensor, resid: Tensor, p: Params, heads: int, empty: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    q = ops.by_head(ops.linear(resid, p["wq_b.weight"]), heads)
    raw = ops.linear(x, p["wk.weight"]).float()
    k = F.layer_norm(raw, raw.shape[-1:], p["k_norm.weight"], p["k_norm.bias"], 1e-6).to(x.dtype)
    gate = ops.linear(x, p["index_kpool_compress_gate"])
    pools = ops.pool_keys(k, gate, p["index_kpool_compress_ape"], empty)
    weights = ops.linear(x, p["weights_proj.weight"]).float() * heads**-0.5
    return q, weights, pools


def _index_loss(
    q: Tensor, weights: Tensor, pools: Tensor, query: Tensor, latent: Tensor, start: Tensor,
    tiles: Tensor, longest: int, index_scale: float, scale: float, first_row: int,
) -> Tensor:  # fmt: skip
    """KL divergence of the indexer's scores from attention over all complete pools, the mean of
    the heads, on some tiles of 16 queries."""
    token = tiles.unsqueeze(-1) * 16 + torch.arange(16, device=tiles.device)
    first = start[token[:, 0]].long()
    key = first.unsqueeze(-1) + torch.arange(longest, device=tiles.device)
    # places beyond the row wrap around: they are masked, and their zero gradients must not all be
    # added to one address
    safe = key % latent.shape[0]
    seen = (key.unsqueeze(1) <= token.unsqueeze(-1)) & (
        key >= first.unsqueeze(-1) + first_row
    ).unsqueeze(1)
    raw = torch.einsum("nqhw,nkw->nhqk", query[token], latent[safe]).float() * scale
    share = torch.softmax(raw.masked_fill(~seen.unsqueeze(1), -1e30), -1).mean(1)
    mass = share.view(*share.shape[:-1], -1, ops.POOL).sum(-1)
    last = key[:, ops.POOL - 1 :: ops.POOL]
    complete = last.unsqueeze(1) <= token.unsqueeze(-1)
    mass = torch.where(complete, mass, 0.0)
    target = mass / (mass.sum(-1, keepdim=True) + 1e-9)
    pool = last // ops.POOL % pools.shape[0]
    hits = torch.relu(torch.einsum("nqhd,npd->nqhp", q[token], pools[pool]).float() * index_scale)
    scores = (weights[token].unsqueeze(-1) * hits).sum(2)
    guessed = torch.log_softmax(scores.masked_fill(~complete, -1e30), -1)
    loss = target * (torch.log(target + 1e-9) - torch.where(complete, guessed, 0.0))
    some = complete.any(-1)
    return torch.where(some, loss.sum(-1), 0.0).sum() / some.sum().clamp(min=1)


def _dense(x: Tensor, p: Params, limit: float) -> Tensor:
    inner = ops.swiglu(
        ops.linear(x, p["gate_proj.weight"]), ops.linear(x, p["up_proj.weight"]), limit
    )
    return ops.linear(inner, p["down_proj.weight"])


def _moe(x: Tensor, p: Params, count: int, scaling: float, limit: float) -> tuple[Tensor, Tensor]:
    weights = ops.route(x, p["gate.weight"], p["gate.e_score_correction_bias"], count, scaling)
    shared = {
        name: p[f"shared_experts.{name}"]
        for name in ("gate_proj.weight", "up_proj.weight", "down_proj.weight")
    }
    y = ops.experts(x, weights, p["experts.gate_up_proj"], p["experts.down_proj"], limit)
    return y + _dense(x, shared, limit), (weights > 0).float().mean(0)


def _draft_in(
    embedded: Tensor, hidden: Tensor, place: Tensor, p: Params, eps: float
) -> tuple[Tensor, Tensor]:
    before = F.pad(hidden, (0, 0, 1, 0))[:-1]
    behind = (place > 0).unsqueeze(-1)
    a = ops.rms_norm(torch.where(behind, embedded, 0.0), p["enorm.weight"], eps)
    b = ops.rms_norm(torch.where(behind, before, 0.0), p["hnorm.weight"], eps)
    x = ops.linear(torch.cat([a, b], -1), p["eh_proj.weight"])
    return x, ops.rms_norm(x, p["input_layernorm.weight"], eps)


def _head(x: Tensor, head: Tensor, targets: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cross entropy by weight, and the likeliest tokens."""
    logits = ops.linear(x, head).float()
    loss = F.cross_entropy(logits, targets, reduction="none")
    return (loss * weight).sum() / weight.sum().clamp(min=1e-6), logits.argmax(-1)
