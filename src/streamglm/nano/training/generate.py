"""Greedy replies from the training model, many at a time: an exam without a server.

Owns the caches of a batch of conversations and one step of decoding. Knows no conversations and
no scores. Prompts are read by the training forward pass up to a multiple of 16 tokens; the rest
of a prompt goes through the step, so a batch needs no padding. What several prompts begin with is
read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from streamglm.model.spec import LayerKind
from streamglm.nano.training import ops
from streamglm.nano.training.backend import Segments
from streamglm.nano.training.net import Net, Row, Selection

_ALIGN = 16
_WHOLE = 256
"""A conversation's longest length is given in units of this many tokens."""


def flat(sequences: Sequence[Sequence[int]], device: torch.device) -> Row:
    """Conversations one behind the other, each padded to a multiple of 16; nothing to learn."""
    ids: list[int] = []
    edges = [0]
    for sequence in sequences:
        ids += [*sequence, *[0] * (-len(sequence) % _ALIGN)]
        edges.append(len(ids))
    places = torch.tensor(edges)
    lengths = places.diff()
    none = torch.zeros(0, dtype=torch.int64, device=device)
    return Row(
        ids=torch.tensor(ids, device=device),
        targets=none,
        weight=none,
        start=torch.repeat_interleave(places[:-1], lengths).int().to(device),
        tiles=none,
        segments=Segments(places.to(device), places),
        longest=-(-int(lengths.max()) // _WHOLE) * _WHOLE,
    )


def _read_lengths(prompts: Sequence[Sequence[int]]) -> list[int]:
    """How much of each prompt is read at once: all but its last token, or, where a neighbour in
    the list begins alike for most of its length, what the two share."""
    lengths = [len(prompt) - 1 for prompt in prompts]
    for i, (one, two) in enumerate(pairwise(prompts)):
        shared = next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), 0)
        if shared > 0.9 * max(len(one), len(two)) and shared > _WHOLE:
            lengths[i], lengths[i + 1] = min(lengths[i], shared), min(lengths[i + 1], shared)
    for i in range(len(prompts) - 1, 0, -1):  # three in a row share what all of them share
        if prompts[i][: lengths[i]] == prompts[i - 1][: lengths[i]]:
            lengths[i - 1] = min(lengths[i - 1], lengths[i])
    return [length // _ALIGN * _ALIGN for length in lengths]


class Batch:
    """Conversations that are decoded together. Caches are by layer name; latents and pools have
    room for `room` tokens each."""

    def __init__(
        self, net: Net, prompts: Sequence[Sequence[int]], selection: Selection, more: int
    ) -> None:
        """Reads the prompts; `more` tokens may follow each."""
        assert all(len(prompt) > _ALIGN for prompt in prompts)
        self.net = net
        self.selection = selection
        self.prompts = [list(prompt) for prompt in prompts]
        self.count = len(prompts)
        self.done = _read_lengths(self.prompts)
        longest = max(len(prompt) for prompt in prompts) + more
        self.room = -(-longest // _WHOLE) * _WHOLE
        self.device = net.params["lm_head.weight"].device
        self.position = torch.tensor(self.done, device=self.device)
        self.latents: dict[str, Tensor] = {}
        self.pools: dict[str, Tensor] = {}
        self.tails: dict[str, tuple[Tensor, Tensor]] = {}
        self.states: dict[str, Tensor] = {}
        self.convs: dict[str, Tensor] = {}
        self._read()

    @torch.no_grad()
    def _read(self) -> None:
        """Run the aligned part of the prompts through the training forward pass."""
        begins = [
            tuple(prompt[:done]) for prompt, done in zip(self.prompts, self.done, strict=True)
        ]
        different = list(dict.fromkeys(begins))
        row = flat(different, self.device)
        which = torch.tensor([different.index(begin) for begin in begins], device=self.device)
        ends = row.segments.edges[1:]
        lengths = row.segments.edges.diff()
        place = torch.arange(len(row.ids), device=self.device) - row.start
        owner = torch.repeat_interleave(torch.arange(len(different), device=self.device), lengths)

        def keep(stem: str, parts: tuple[Tensor | None, ...]) -> None:
            first, second = parts
            assert first is not None
            assert second is not None
            if stem + "kv_b_proj.weight" in self.net.params:
                latent = first.new_zeros(len(different), self.room, first.shape[-1])
                latent[owner, place] = first
                pool = second.new_zeros(len(different), self.room // ops.POOL, second.shape[-1])
                pool[owner[:: ops.POOL], place[:: ops.POOL] // ops.POOL] = second
                self.latents[stem], self.pools[stem] = latent[which], pool[which]
                blank = second.new_zeros(self.count, ops.POOL, second.shape[-1])
                self.tails[stem] = (blank, blank.clone())
            else:
                self.states[stem] = second.float()[which]
                qkv = ops.linear(first, self._qkv(stem))
                back = torch.arange(-3, 0, device=self.device)
                self.convs[stem] = qkv[ends.unsqueeze(-1) + back][which]

        self.net.watch = keep
        try:
            self.net.hidden(row, self.selection)
        finally:
            self.net.watch = None

    def _qkv(self, stem: str) -> Tensor:
        return torch.cat([self.net.params[f"{stem}{n}_proj.weight"] for n in "qkv"])

    # ---- one token for everyone

    @torch.no_grad()
    def step(self, ids: Tensor) -> Tensor:
        """Feed one token to each conversation, [count] int64; the logits, float32."""
        net, spec = self.net, self.net.spec
        embedded = F.embedding(ids, net.params["embed_tokens.weight"]).to(net.backend.dtype)
        streams = embedded.unsqueeze(1).expand(-1, spec.streams, -1).contiguous()
        for number, (fn, base, scale, norm) in enumerate(net.sites()):
            pre, post, logits = ops.coefficients(
                streams, fn, base, scale, spec.rms_norm_eps, spec.hc_eps
            )
            comb = net.backend.sinkhorn(logits.contiguous(), spec.hc_eps, spec.sinkhorn_iters)
            x = ops.rms_norm(ops.collapse(streams, pre), norm, spec.rms_norm_eps)
            streams = ops.mix(streams, post, comb, self._block(number, x))
        mean = streams.float().mean(1).to(streams.dtype)
        hidden = ops.rms_norm(mean, net.params["norm.weight"], spec.rms_norm_eps)
        self.position += 1
        return ops.linear(hidden, net.params["lm_head.weight"]).float()

    def _block(self, number: int, x: Tensor) -> Tensor:
        layer = number // 2
        if number % 2:
            return self.net.mlp(f"layers.{layer}.mlp.", x, self.net.spec.sparse_mlp[layer])
        stem = f"layers.{layer}.self_attn."
        if self.net.spec.layers[layer] is LayerKind.KDA:
            return self._kda(stem, x)
        return self._latent(stem, x)

    def _kda(self, stem: str, x: Tensor) -> Tensor:
        p, spec = self.net.under(stem), self.net.spec
        heads = spec.kda_heads
        rows = torch.cat([self.convs[stem], ops.linear(x, self._qkv(stem)).unsqueeze(1)], 1)
        self.convs[stem] = rows[:, 1:]
        mixed = F.silu(torch.einsum("btc,ct->bc", rows.float(), p["conv1d.weight"])).to(x.dtype)
        q, k, v = (ops.by_head(part, heads) for part in mixed.chunk(3, -1))
        f = ops.linear(ops.linear(x, p["f_a_proj.weight"]), p["f_b_proj.weight"])
        g = ops.log_decay(ops.by_head(f, heads), p["A_log"], p["dt_bias"], spec.gate_lower_bound)
        beta = torch.sigmoid(ops.linear(x, p["b_proj.weight"]).float())
        self.states[stem], out = ops.delta_step(self.states[stem], q, k, v, g, beta)
        gate = ops.linear(ops.linear(x, p["g_a_proj.weight"]), p["g_b_proj.weight"])
        gate = ops.by_head(gate, heads)
        normed = ops.gated_norm(out.to(x.dtype), gate, p["o_norm.weight"], spec.rms_norm_eps)
        return ops.linear(normed.flatten(1), p["o_proj.weight"])

    def _latent(self, stem: str, x: Tensor) -> Tensor:
        net, spec = self.net, self.net.spec
        p, index = net.under(stem), net.under(stem + "indexer.")
        resid, query, latent = net.latent_in(x, p, spec.heads, spec.nope_dim, spec.rms_norm_eps)
        who = torch.arange(self.count, device=self.device)
        self.latents[stem][who, self.position] = latent
        self._pool(stem, x, index)
        seen = self._seen(stem, x, resid, index)
        keys = self.latents[stem]
        scores = torch.einsum("bhw,bkw->bhk", query.float(), keys.float()) * spec.nope_dim**-0.5
        share = torch.softmax(scores.masked_fill(~seen.unsqueeze(1), float("-inf")), -1)
        out = torch.einsum("bhk,bkw->bhw", share, keys.float()).to(x.dtype)
        result: Tensor = net.latent_out(out, p, spec.nope_dim)
        return result

    def _pool(self, stem: str, x: Tensor, index: dict[str, Tensor]) -> None:
        """Put the token's index key into its pool; finished pools are what can be selected."""
        raw = ops.linear(x, index["wk.weight"]).float()
        k = F.layer_norm(raw, raw.shape[-1:], index["k_norm.weight"], index["k_norm.bias"], 1e-6)
        keys, gates = self.tails[stem]
        who = torch.arange(self.count, device=self.device)
        slot = self.position % ops.POOL
        keys[who, slot] = k.to(x.dtype)
        gates[who, slot] = ops.linear(x, index["index_kpool_compress_gate"])
        made = ops.pool_keys(
            keys.flatten(0, 1), gates.flatten(0, 1), index["index_kpool_compress_ape"], None
        )
        full = slot == ops.POOL - 1
        place = torch.where(full, self.position // ops.POOL, self.room // ops.POOL - 1)
        current = self.pools[stem][who, place]
        self.pools[stem][who, place] = torch.where(full.unsqueeze(-1), made, current)

    def _seen(self, stem: str, x: Tensor, resid: Tensor, index: dict[str, Tensor]) -> Tensor:
        """Which tokens the new one attends to, [count, room] bool."""
        spec = self.net.spec
        heads = spec.index_heads
        q = ops.by_head(ops.linear(resid, index["wq_b.weight"]), heads)
        weights = ops.linear(x, index["weights_proj.weight"]).float() * heads**-0.5
        raw = (
            torch.einsum("bhd,bpd->bhp", q.float(), self.pools[stem].float()) * spec.index_dim**-0.5
        )
        scores = (weights.unsqueeze(-1) * F.relu(raw)).sum(1)
        if self.selection.by == "random":
            scores = torch.rand_like(scores)
        column = torch.arange(scores.shape[1], device=self.device)
        complete = (column + 1) * ops.POOL <= (self.position + 1).unsqueeze(-1)
        scores = scores.masked_fill(~complete, float("-inf"))
        best = scores.topk(min(self.selection.pools, scores.shape[1]), -1)
        chosen = torch.zeros_like(complete).scatter(1, best.indices, best.values > float("-inf"))
        if self.selection.by == "all":
            chosen = complete
        token = torch.arange(self.room, device=self.device)
        tail_begin = ((self.position + 1) // ops.POOL * ops.POOL).unsqueeze(-1)
        tail = (token >= tail_begin) & (token <= self.position.unsqueeze(-1))
        return chosen.repeat_interleave(ops.POOL, -1) | tail


def greedy(
    net: Net, prompts: Sequence[Sequence[int]], ends: Sequence[int], most: int, selection: Selection
) -> list[list[int]]:
    """The likeliest reply to each prompt, to its end token or to `most` tokens."""
    batch = Batch(net, prompts, selection, most + 1)
    replies: list[list[int]] = [[] for _ in prompts]
    left = [prompt[done:] for prompt, done in zip(batch.prompts, batch.done, strict=True)]
    stop = set(ends)
    following = [rest.pop(0) for rest in left]
    open_ = set(range(len(prompts)))
    while open_:
        logits = batch.step(torch.tensor(following, device=batch.device))
        likeliest = logits.argmax(-1).tolist()
        for i in range(len(prompts)):
            if left[i]:
                following[i] = left[i].pop(0)
                continue
            following[i] = likeliest[i]
            if i in open_:
                replies[i].append(likeliest[i])
                if likeliest[i] in stop or len(replies[i]) >= most:
                    open_.discard(i)
    return replies
