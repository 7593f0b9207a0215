"""The table of tensors: the published totals, and shares that join to the whole."""

from __future__ import annotations

from math import ceil, prod

import pytest

from streamglm.model.share import Span
from streamglm.weights.layout import Layout, Source, layout
from support.checkpoints import FLOAT32, FP8_PARTS, real_config, spec_of, tiny_config

VISION_TENSORS, VISION_BYTES = 24 * 14 + 11, 1_127_254_016


@pytest.fixture(scope="module")
def real() -> Layout:
    return layout(spec_of(real_config()))


def _bf16_bytes(source: Source) -> int:
    return prod(source.shape) * (4 if source.name.endswith(FLOAT32) else 2)


def _in_blocks(source: Source) -> bool:
    """Whether the official FP8 repository stores a tensor in 128 x 128 blocks."""
    if source.name.endswith("self_attn.o_proj.weight"):  # of latent layers alone
        return source.mtp or int(source.name.split(".")[3]) % 4 == 3
    return source.name.endswith(FP8_PARTS)


def test_bytes_are_those_of_the_published_bf16_repository(real: Layout) -> None:
    assert sum(map(_bf16_bytes, real.sources.values())) + VISION_BYTES == 642_646_653_816


def test_bytes_and_count_are_those_of_the_published_fp8_repository(real: Layout) -> None:
    blocks = [source for source in real.sources.values() if _in_blocks(source)]
    plain = sum(_bf16_bytes(s) for s in real.sources.values() if not _in_blocks(s))
    packed = sum(prod(s.shape) + 4 * prod(ceil(n / 128) for n in s.shape) for s in blocks)
    assert plain + packed + VISION_BYTES == 328_326_771_576
    assert len(real.sources) + len(blocks) + VISION_TENSORS == 76_108


def test_every_parameter_is_filled_exactly_once(real: Layout) -> None:
    filled = dict.fromkeys(real.params, 0)
    for source in real.sources.values():
        filled[source.param] += prod(span.size for span in source.into)
        assert all(
            span.stop <= size
            for span, size in zip(source.into, real.params[source.param], strict=True)
        )
    assert filled == {name: prod(shape) for name, shape in real.params.items()}


def test_a_rank_takes_whole_heads() -> None:
    spec = spec_of(real_config())
    second = layout(spec, rank=1, world=3)
    prefix = "model.language_model.layers."
    rows = {
        "0.self_attn.q_proj.weight": 128,
        "0.self_attn.f_b_proj.weight": 128,
        "0.self_attn.dt_bias": 128,
        "0.self_attn.o_proj.weight": 128,
        "0.self_attn.A_log": 1,
        "0.self_attn.b_proj.weight": 1,
        "3.self_attn.q_b_proj.weight": 256,
        "3.self_attn.kv_b_proj.weight": 512,
        "3.self_attn.o_proj.weight": 256,
    }
    for name, unit in rows.items():
        assert second.sources[prefix + name].part == Span(22 * unit, 43 * unit), name


def test_a_rank_takes_whole_blocks_of_an_mlp() -> None:
    """Those of the official FP8 repository, so that each has its scale on one rank."""
    second = layout(spec_of(real_config()), rank=1, world=3)
    prefix = "model.language_model.layers."
    for stem in ("9.mlp.experts.287.", "9.mlp.shared_experts."):
        assert second.sources[f"{prefix}{stem}gate_proj.weight"].part == Span(768, 1408)
        assert second.sources[f"{prefix}{stem}down_proj.weight"].part == Span(768, 1408)
    assert second.sources[f"{prefix}0.mlp.up_proj.weight"].part == Span(4096, 8192)
    assert second.params["layers.9.mlp.experts.gate_up_proj"] == (288, 2 * 640, 4096)


@pytest.mark.parametrize(
    "name",
    [
        "embed_tokens.weight",
        "norm.weight",
        "layers.1.mlp.gate.weight",
        "layers.1.mlp.gate.e_score_correction_bias",
        "layers.2.self_attn.indexer.wq_b.weight",
        "layers.2.self_attn.kv_a_proj_with_mqa.weight",
        "layers.0.hc_attn_fn",
        "layers.4.eh_proj.weight",
    ],
)
def test_every_rank_holds_what_all_must_compute_alike(name: str) -> None:
    spec = spec_of(tiny_config())
    whole = layout(spec)
    assert layout(spec, rank=2, world=3).params[name] == whole.params[name]
