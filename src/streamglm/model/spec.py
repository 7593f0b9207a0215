"""ModelSpec: a checkpoint's `config.json` as frozen numbers, validated once.

Owns every number of the model. Knows no torch, no weights, no machine. Invariant: nothing is
taken from a class default when the file says it, and a field without which the arithmetic would
be a guess (say `index_kpool`, 16 in one library and 4 in the checkpoint) must be in the file.
Field names and values: the checkpoint's own `config.json`; row counts (page, chunk, KDA chunk)
come from its optional `streamglm` object, so that a small model meets every mechanism early.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar, cast

from streamglm.errors import CheckpointError
from streamglm.pool.layout import CacheShape, RowFormat, head_share

T = TypeVar("T", int, float, bool)


class LayerKind(StrEnum):
    """How a layer attends."""

    KDA = "linear_attention"
    DSA = "indexed_attention"


# Both spellings of a layer that attends to latents, and an older one.
_KINDS = {
    "linear_attention": LayerKind.KDA,
    "indexed_attention": LayerKind.DSA,
    "deepseek_sparse_attention": LayerKind.DSA,
    "full_attention": LayerKind.DSA,
}


@dataclass(frozen=True, slots=True)
class Rows:
    """Row counts of the paged caches and of a prompt pass, in tokens."""

    page: int = 512
    """Rows of a page; a mark lies at every page boundary."""
    chunk: int = 2048
    """Rows of a prompt chunk at most."""
    kda_chunk: int = 64
    """Rows of a KDA block; a prompt chunk starts on a multiple of it."""
    attend: int = 512
    """Keys that attention merges at a time, in absolute order."""
    window: int = 32
    """Rows of a shared window at most."""
    verify: int = 16
    """Rows of one lane's verify window at most."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The numbers of a `glm5_next` text model. Sizes are per model, not per rank."""

    vocab_size: int
    hidden_size: int
    layers: tuple[LayerKind, ...]
    sparse_mlp: tuple[bool, ...]
    """Layer by layer: experts, or one dense MLP."""
    intermediate_size: int
    moe_intermediate_size: int
    n_routed_experts: int
    n_shared_experts: int
    num_experts_per_tok: int
    norm_topk_prob: bool
    routed_scaling_factor: float
    swiglu_limit: float
    rms_norm_eps: float
    max_positions: int
    # KDA
    kda_heads: int
    kda_head_dim: int
    conv_width: int
    gate_lower_bound: float
    # MLA and its indexer
    heads: int
    q_lora_rank: int
    kv_lora_rank: int
    nope_dim: int
    v_dim: int
    index_heads: int
    index_dim: int
    index_topk: int
    """Tokens that the indexer selects at most, besides the incomplete pool."""
    pool: int
    """Tokens of an index pool (`index_kpool`)."""
    # hyper-connections
    streams: int
    hc_eps: float
    sinkhorn_iters: int
    # next-token layers
    mtp_layers: int
    # tokens
    eos_ids: tuple[int, ...]
    rows: Rows

    @property
    def kda_layers(self) -> tuple[int, ...]:
        """Indices of the KDA layers, ascending."""
        return tuple(i for i, kind in enumerate(self.layers) if kind is LayerKind.KDA)

    @property
    def dsa_layers(self) -> tuple[int, ...]:
        """Indices of the layers that attend to latents, ascending; the trunk's only."""
        return tuple(i for i, kind in enumerate(self.layers) if kind is LayerKind.DSA)

    @property
    def latent_caches(self) -> int:
        """Latent caches: one a DSA layer and one an MTP layer."""
        return len(self.dsa_layers) + self.mtp_layers

    @property
    def kda_width(self) -> int:
        """Channels of q, of k and of v in a KDA layer."""
        return self.kda_heads * self.kda_head_dim

    @property
    def topk_pools(self) -> int:
        """Pools that the indexer selects at most."""
        return self.index_topk // self.pool

    @property
    def dense_limit(self) -> int:
        """Visible tokens up to which every pool is chosen, so that selection changes nothing."""
        return self.index_topk + self.pool - 1

    @property
    def hc_outputs(self) -> int:
        """Coefficients of a hyper-connection: pre, post and comb."""
        return (2 + self.streams) * self.streams

    def cache_shape(
        self,
        rows: RowFormat = RowFormat.FP32,
        *,
        world: int = 1,
        value_itemsize: int | None = None,
        drafts: bool = True,
    ) -> CacheShape:
        """The caches of one of `world` ranks, the one with the most KDA heads.

        `value_itemsize`: bytes of an activation; by default those of a pooled key. Without
        `drafts` there is no cache of the next-token layer, no verify window and no pending hidden.
        """
        return CacheShape(
            caches=self.latent_caches if drafts else len(self.dsa_layers),
            latent_dim=self.kv_lora_rank,
            index_dim=self.index_dim,
            pool=self.pool,
            page_rows=self.rows.page,
            kda_layers=len(self.kda_layers),
            kda_heads=head_share(self.kda_heads, world),
            kda_head_dim=self.kda_head_dim,
            conv_width=self.conv_width,
            rows=rows,
            hidden=self.hidden_size if drafts and self.mtp_layers else 0,
            verify_rows=self.rows.verify if drafts else 0,
            value_itemsize=value_itemsize or rows.key_itemsize,
        )

    @classmethod
    def from_config(cls, config: Mapping[str, Any], generation: Mapping[str, Any]) -> ModelSpec:
        """Read a checkpoint's `config.json` and `generation_config.json`.

        Raises `CheckpointError` naming the field that is missing, of a wrong type, or that this
        engine cannot honour.
        """
        if config.get("model_type") not in ("glm5_next", "glm5_next_text"):
            raise CheckpointError(
                f"config.json: model_type is {config.get('model_type')!r}, and this server "
                "serves 'glm5_next'"
            )
        return _Reader(config, generation).spec()

    @classmethod
    def from_folder(cls, folder: Path) -> ModelSpec:
        """`from_config` on the two files of a checkpoint folder."""
        generation = folder / "generation_config.json"
        return cls.from_config(
            read_json(folder / "config.json"),
            read_json(generation) if generation.is_file() else {},
        )


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; `CheckpointError` naming the file when there is none."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path.name}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise CheckpointError(f"{path.name}: not JSON ({error})") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path.name}: holds {type(value).__name__}, not an object")
    return cast("dict[str, Any]", value)


def _object(name: str, value: object) -> Mapping[str, Any]:
    """`value` if it is a JSON object; `CheckpointError` naming the field if not."""
    if not isinstance(value, Mapping):
        raise CheckpointError(f"config.json: {name} is {type(value).__name__}, not an object")
    return cast("Mapping[str, Any]", value)


class _Reader:
    """One pass over the file's fields; every error names the field."""

    def __init__(self, config: Mapping[str, Any], generation: Mapping[str, Any]) -> None:
        self.config = config
        self.generation = generation
        self.text = _object("text_config", config.get("text_config") or config)
        self.linear = _object("linear_attn_config", self.text.get("linear_attn_config") or {})

    def number(self, name: str, kind: type[T], default: T | None = None, low: float = 1) -> T:
        value = self.text.get(name, default)
        return self._checked(name, value, kind, low)

    def kda(self, name: str, flat: str, kind: type[T], low: float = 1) -> T:
        """A field of `linear_attn_config`, or transformers' flat spelling of it."""
        value = self.linear.get(name, self.text.get(flat))
        return self._checked(f"linear_attn_config.{name} ({flat})", value, kind, low)

    def _checked(self, name: str, value: object, kind: type[T], low: float) -> T:
        if value is None:
            raise CheckpointError(f"config.json: {name} is missing, and it has no safe default")
        accepted = isinstance(value, kind) or (
            kind is float and isinstance(value, int) and not isinstance(value, bool)
        )
        if not accepted or (kind is int and isinstance(value, bool)):
            raise CheckpointError(f"config.json: {name} is {value!r}, not of type {kind.__name__}")
        number = kind(cast("Any", value))
        if kind is not bool and not number >= low:  # so that NaN is refused too
            raise CheckpointError(f"config.json: {name} is {number}, below {low:g}")
        return number

    def only(self, name: str, served: object) -> None:
        """A field that has one value this engine can honour."""
        value = self.text.get(name, served)
        if value is not None and value != served:
            raise CheckpointError(f"config.json: {name} is {value!r}; only {served!r} is served")

    def names(self, name: str, count: int, known: Mapping[str, Any]) -> list[Any]:
        value = self.text.get(name)
        if not isinstance(value, list) or len(value) != count:
            raise CheckpointError(
                f"config.json: {name} must list {count} entries, one a layer"
                f" (it has {len(value) if isinstance(value, list) else value!r})"
            )
        unknown = [v for v in value if not isinstance(v, str) or v not in known]
        if unknown:
            raise CheckpointError(
                f"config.json: {name} has {unknown[0]!r}; known are {', '.join(known)}"
            )
        return [known[v] for v in value]

    def eos(self) -> tuple[int, ...]:
        """End tokens: generation_config.json first, since it is what generation reads."""
        for source in (self.generation, self.text, self.config):
            value = source.get("eos_token_id")
            if value is not None:
                ids = value if isinstance(value, list) else [value]
                return tuple(self._checked("eos_token_id", token, int, low=0) for token in ids)
        return ()

    def rows(self) -> Rows:
        raw = _object("streamglm", self.config.get("streamglm") or {})
        default = Rows()

        def count(name: str, value: int) -> int:
            return self._checked(f"streamglm.{name}", raw.get(name, value), int, low=1)

        rows = Rows(
            page=count("page_rows", default.page),
            chunk=count("chunk_rows", default.chunk),
            kda_chunk=count("kda_chunk_rows", default.kda_chunk),
            attend=count("attend_rows", default.attend),
            window=count("window_rows", default.window),
            verify=count("verify_rows", default.verify),
        )
        for name, value, unit in (
            ("page_rows", rows.page, rows.kda_chunk),
            ("chunk_rows", rows.chunk, rows.page),
        ):
            if value < unit or value % unit:
                raise CheckpointError(
                    f"config.json: streamglm.{name} is {value}, not a multiple of {unit}"
                )
        return rows

    def spec(self) -> ModelSpec:
        count = self.number("num_hidden_layers", int)
        for name, served in (
            ("hidden_act", "silu"),
            ("qk_rope_head_dim", 0),
            ("n_group", 1),
            ("topk_group", 1),
            ("attention_bias", False),
            ("index_kpool_always_select_tail", True),
            ("tie_word_embeddings", False),
        ):
            self.only(name, served)
        indexers = self.text.get("indexer_types")
        if indexers is not None and any(v != "full" for v in indexers):
            raise CheckpointError("config.json: indexer_types has 'shared'; only 'full' is served")
        pool = self.number("index_kpool", int)
        topk = self.number("index_topk", int)
        if topk % pool:
            raise CheckpointError(
                f"config.json: index_topk is {topk}, not a multiple of index_kpool {pool}"
            )
        spec = ModelSpec(
            vocab_size=self.number("vocab_size", int),
            hidden_size=self.number("hidden_size", int),
            layers=tuple(self.names("layer_types", count, _KINDS)),
            sparse_mlp=tuple(
                self.names("mlp_layer_types", count, {"dense": False, "sparse": True})
            ),
            intermediate_size=self.number("intermediate_size", int),
            moe_intermediate_size=self.number("moe_intermediate_size", int),
            n_routed_experts=self.number("n_routed_experts", int),
            n_shared_experts=self.number("n_shared_experts", int),
            num_experts_per_tok=self.number("num_experts_per_tok", int),
            norm_topk_prob=self.number("norm_topk_prob", bool),
            routed_scaling_factor=self.number("routed_scaling_factor", float, low=0),
            swiglu_limit=self.number("swiglu_limit", float, low=0),
            rms_norm_eps=self.number("rms_norm_eps", float, low=0),
            max_positions=self.number("max_position_embeddings", int),
            kda_heads=self.kda("num_heads", "linear_num_heads", int),
            kda_head_dim=self.kda("head_dim", "linear_head_dim", int),
            conv_width=self.kda("short_conv_kernel_size", "linear_conv_kernel_dim", int, low=2),
            gate_lower_bound=self.kda(
                "gate_lower_bound", "linear_lower_bound", float, low=float("-inf")
            ),
            heads=self.number("num_attention_heads", int),
            q_lora_rank=self.number("q_lora_rank", int),
            kv_lora_rank=self.number("kv_lora_rank", int),
            nope_dim=self.number("qk_nope_head_dim", int),
            v_dim=self.number("v_head_dim", int),
            index_heads=self.number("index_n_heads", int),
            index_dim=self.number("index_head_dim", int),
            index_topk=topk,
            pool=pool,
            streams=self.number("hc_mult", int),
            hc_eps=self.number("hc_eps", float, low=0),
            sinkhorn_iters=self.number("hc_sinkhorn_iters", int),
            mtp_layers=self.number("num_nextn_predict_layers", int, default=0, low=0),
            eos_ids=self.eos(),
            rows=self.rows(),
        )
        if spec.num_experts_per_tok > spec.n_routed_experts:
            raise CheckpointError(
                f"config.json: num_experts_per_tok is {spec.num_experts_per_tok}, more than the "
                f"{spec.n_routed_experts} experts of n_routed_experts"
            )
        if spec.rows.page % spec.pool:
            raise CheckpointError(
                f"config.json: streamglm.page_rows is {spec.rows.page}, not a multiple of "
                f"index_kpool {spec.pool}, so a pool would straddle pages"
            )
        if spec.rows.kda_chunk % 16 or spec.rows.kda_chunk % spec.pool:
            raise CheckpointError(
                f"config.json: streamglm.kda_chunk_rows is {spec.rows.kda_chunk}, not a multiple "
                f"of 16 and of index_kpool {spec.pool}"
            )
        if not -80.0 <= spec.gate_lower_bound < 0.0:
            raise CheckpointError(
                f"config.json: gate_lower_bound is {spec.gate_lower_bound}; a log-decay below 0 "
                "and not below -80 is served"
            )
        if spec.mtp_layers > 1:
            raise CheckpointError(
                f"config.json: num_nextn_predict_layers is {spec.mtp_layers}; one is served"
            )
        return spec
