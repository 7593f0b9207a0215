"""Layout: every text tensor of a checkpoint, the parameter it fills, and the part a rank takes.

Owns hub names, whole shapes and the cut of each tensor between ranks. Knows no torch, no files,
no number formats. Invariant: the parts of all ranks, joined along the cut axis, are the whole
tensor, and every parameter is filled exactly once. Names and shapes: the checkpoint's headers.

Which part is whose, `model/share.py` says.

    parameter                                   filled from
    layers.N.mlp.experts.gate_up_proj[e]        rows [0, i) gate_proj of expert e, [i, 2i) up_proj
    layers.N.mlp.experts.down_proj[e]           down_proj of expert e
    layers.N.self_attn.conv1d.weight            rows [0, w) q_conv1d, [w, 2w) k_conv1d, [2w, 3w) v
    any other                                   the tensor of that name
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from streamglm.model.share import Share, Span, check, share
from streamglm.model.spec import LayerKind, ModelSpec

TEXT = "model.language_model."
"""Prefix of the text model's tensors; `lm_head.weight` alone stands without it."""
VISION = "model.visual."
"""Prefix of the tensors that a text server leaves in the file."""


@dataclass(frozen=True, slots=True)
class Source:
    """One tensor of the checkpoint and where a rank's part of it goes.

    `cut` is the axis that ranks divide (None: every rank holds the whole) and `part` the range
    of it that this rank takes. The part fills `into` of the parameter, one span a dimension, in
    row-major order; the two may differ in dimensions of size one.
    """

    name: str
    shape: tuple[int, ...]
    param: str
    cut: int | None
    part: Span
    into: tuple[Span, ...]
    mtp: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """The whole table for one rank. `params` holds the shape of each parameter."""

    sources: dict[str, Source]
    params: dict[str, tuple[int, ...]]


def layout(spec: ModelSpec, *, rank: int = 0, world: int = 1) -> Layout:
    """The table of every text tensor of `spec`, the next-token layer's included. Raises
    `SettingError` where there is nothing to take for a rank."""
    check(spec, world)
    return _Table(spec, rank, world).build()


class _Table:
    """Builds the table layer by layer; `stem` is the name up to the layer's own part."""

    def __init__(self, spec: ModelSpec, rank: int, world: int) -> None:
        self.spec = spec
        self.share = Share(spec, rank, world)
        self.sources: dict[str, Source] = {}
        self.params: dict[str, tuple[int, ...]] = {}
        self.mtp = False

    def build(self) -> Layout:
        spec = self.spec
        self.whole("embed_tokens.weight", spec.vocab_size, spec.hidden_size)
        self.whole("norm.weight", spec.hidden_size)
        self.split("lm_head.weight", (spec.vocab_size, spec.hidden_size), cut=0, prefix="")
        for index, kind in enumerate(spec.layers):
            self.trunk_layer(f"layers.{index}.", kind, spec.sparse_mlp[index])
        self.mtp = True
        for index in range(len(spec.layers), len(spec.layers) + spec.mtp_layers):
            self.mtp_layer(f"layers.{index}.")
        return Layout(self.sources, self.params)

    def whole(self, name: str, *shape: int) -> None:
        """A tensor that every rank holds."""
        self.fill(name, shape, None, Span(0, shape[0]), name, tuple(Span(0, n) for n in shape))
        self.params[name] = shape

    def split(
        self, name: str, shape: tuple[int, ...], *, cut: int, unit: int = 1, prefix: str = TEXT
    ) -> None:
        """A tensor that ranks divide along `cut`, in units of `unit` rows or columns."""
        self.parted(name, shape, cut, self.part(shape[cut], unit), prefix)

    def parted(
        self, name: str, shape: tuple[int, ...], cut: int, part: Span, prefix: str = TEXT
    ) -> None:
        """A tensor of which this rank takes `part` along `cut`."""
        held = (*shape[:cut], part.size, *shape[cut + 1 :])
        self.fill(name, shape, cut, part, name, tuple(Span(0, n) for n in held), prefix)
        self.params[name] = held

    def part(self, total: int, unit: int = 1) -> Span:
        units = share(total // unit, self.share.rank, self.share.world)
        return Span(units.start * unit, units.stop * unit)

    def fill(
        self,
        name: str,
        shape: tuple[int, ...],
        cut: int | None,
        part: Span,
        param: str,
        into: tuple[Span, ...],
        prefix: str = TEXT,
    ) -> None:
        hub = prefix + name
        assert hub not in self.sources
        self.sources[hub] = Source(hub, shape, param, cut, part, into, self.mtp)

    def trunk_layer(self, stem: str, kind: LayerKind, sparse: bool) -> None:
        self.norms(stem)
        self.hyper(stem)
        if kind is LayerKind.KDA:
            self.kda(stem + "self_attn.")
        else:
            self.latent(stem + "self_attn.")
        if sparse:
            self.experts(stem + "mlp.")
        else:
            self.dense(stem + "mlp.", self.spec.intermediate_size)

    def mtp_layer(self, stem: str) -> None:
        hidden = self.spec.hidden_size
        for name in ("enorm", "hnorm", "shared_head.norm"):
            self.whole(f"{stem}{name}.weight", hidden)
        self.whole(stem + "eh_proj.weight", hidden, 2 * hidden)
        self.norms(stem)
        self.latent(stem + "self_attn.")
        self.experts(stem + "mlp.")

    def norms(self, stem: str) -> None:
        for name in ("input_layernorm", "post_attention_layernorm"):
            self.whole(f"{stem}{name}.weight", self.spec.hidden_size)

    def hyper(self, stem: str) -> None:
        spec = self.spec
        for site in ("attn", "ffn"):
            self.whole(f"{stem}hc_{site}_fn", spec.hc_outputs, spec.streams * spec.hidden_size)
            self.whole(f"{stem}hc_{site}_base", spec.hc_outputs)
            self.whole(f"{stem}hc_{site}_scale", 3)

    def kda(self, stem: str) -> None:
        spec, hidden = self.spec, self.spec.hidden_size
        width, dim, heads = spec.kda_width, spec.kda_head_dim, spec.kda_heads
        for name in ("q_proj", "k_proj", "v_proj"):
            self.split(f"{stem}{name}.weight", (width, hidden), cut=0, unit=dim)
        self.convolutions(stem)
        self.split(stem + "b_proj.weight", (heads, hidden), cut=0)
        for name in ("f", "g"):
            self.whole(f"{stem}{name}_a_proj.weight", dim, hidden)
            self.split(f"{stem}{name}_b_proj.weight", (width, dim), cut=0, unit=dim)
        self.split(stem + "A_log", (heads,), cut=0)
        self.split(stem + "dt_bias", (width,), cut=0, unit=dim)
        self.whole(stem + "o_norm.weight", dim)
        self.split(stem + "o_proj.weight", (hidden, width), cut=1, unit=dim)

    def convolutions(self, stem: str) -> None:
        spec = self.spec
        part = self.part(spec.kda_width, spec.kda_head_dim)
        param = stem + "conv1d.weight"
        taps = Span(0, spec.conv_width)
        for place, name in enumerate("qkv"):
            rows = Span(place * part.size, (place + 1) * part.size)
            shape = (spec.kda_width, 1, spec.conv_width)
            self.fill(f"{stem}{name}_conv1d.weight", shape, 0, part, param, (rows, taps))
        self.params[param] = (3 * part.size, spec.conv_width)

    def latent(self, stem: str) -> None:
        spec, hidden = self.spec, self.spec.hidden_size
        rank, heads = spec.q_lora_rank, spec.heads
        self.whole(stem + "q_a_proj.weight", rank, hidden)
        self.whole(stem + "q_a_layernorm.weight", rank)
        self.split(
            stem + "q_b_proj.weight", (heads * spec.nope_dim, rank), cut=0, unit=spec.nope_dim
        )
        self.whole(stem + "kv_a_proj_with_mqa.weight", spec.kv_lora_rank, hidden)
        self.whole(stem + "kv_a_layernorm.weight", spec.kv_lora_rank)
        per_head = spec.nope_dim + spec.v_dim  # a head's K rows, then its V rows
        self.split(
            stem + "kv_b_proj.weight", (heads * per_head, spec.kv_lora_rank), cut=0, unit=per_head
        )
        self.split(stem + "o_proj.weight", (hidden, heads * spec.v_dim), cut=1, unit=spec.v_dim)
        self.indexer(stem + "indexer.")

    def indexer(self, stem: str) -> None:
        """Whole on every rank: each selects for itself, and all must select alike."""
        spec, dim = self.spec, self.spec.index_dim
        self.whole(stem + "wq_b.weight", spec.index_heads * dim, spec.q_lora_rank)
        self.whole(stem + "wk.weight", dim, spec.hidden_size)
        self.whole(stem + "k_norm.weight", dim)
        self.whole(stem + "k_norm.bias", dim)
        self.whole(stem + "weights_proj.weight", spec.index_heads, spec.hidden_size)
        self.whole(stem + "index_kpool_compress_ape", spec.pool, dim)
        self.whole(stem + "index_kpool_compress_gate", dim, spec.hidden_size)

    def dense(self, stem: str, inner: int) -> None:
        hidden, part = self.spec.hidden_size, self.share.columns(inner)
        for name in ("gate_proj", "up_proj"):
            self.parted(f"{stem}{name}.weight", (inner, hidden), 0, part)
        self.parted(stem + "down_proj.weight", (hidden, inner), 1, part)

    def experts(self, stem: str) -> None:
        spec, hidden = self.spec, self.spec.hidden_size
        self.whole(stem + "gate.weight", spec.n_routed_experts, hidden)
        self.whole(stem + "gate.e_score_correction_bias", spec.n_routed_experts)
        self.dense(stem + "shared_experts.", spec.n_shared_experts * spec.moe_intermediate_size)
        for expert in range(spec.n_routed_experts):
            self.expert(stem + "experts.", expert)
        part = self.share.columns(spec.moe_intermediate_size)
        count = spec.n_routed_experts
        self.params[stem + "experts.gate_up_proj"] = (count, 2 * part.size, hidden)
        self.params[stem + "experts.down_proj"] = (count, hidden, part.size)

    def expert(self, stem: str, expert: int) -> None:
        inner, hidden = self.spec.moe_intermediate_size, self.spec.hidden_size
        part = self.share.columns(inner)
        for param, name, cut, place in _expert_places(hidden, part.size):
            shape = (inner, hidden) if cut == 0 else (hidden, inner)
            into = (Span(expert, expert + 1), *place)
            self.fill(f"{stem}{expert}.{name}.weight", shape, cut, part, stem + param, into)


def _expert_places(hidden: int, inner: int) -> Iterator[tuple[str, str, int, tuple[Span, Span]]]:
    """(parameter, tensor, cut axis, place) of an expert's three tensors; `inner` of this rank."""
    across = Span(0, hidden)
    yield "gate_up_proj", "gate_proj", 0, (Span(0, inner), across)
    yield "gate_up_proj", "up_proj", 0, (Span(inner, 2 * inner), across)
    yield "down_proj", "down_proj", 1, (across, Span(0, inner))
