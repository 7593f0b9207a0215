"""The real model's numbers, as they were published."""

from __future__ import annotations

from streamglm.model.shapes import glm_5_3_flash


def test_the_layers_are_34_linear_and_11_latent_every_fourth() -> None:
    spec = glm_5_3_flash()
    assert len(spec.layers) == 45
    assert spec.dsa_layers == (3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43)
    assert len(spec.kda_layers) == 34
    assert 44 in spec.kda_layers


def test_three_layers_are_dense_and_the_rest_have_experts() -> None:
    spec = glm_5_3_flash()
    assert spec.sparse_mlp == (False,) * 3 + (True,) * 42


def test_the_indexer_selects_512_pools_of_four_tokens() -> None:
    spec = glm_5_3_flash()
    assert (spec.pool, spec.topk_pools, spec.dense_limit) == (4, 512, 2_051)


def test_a_next_token_layer_makes_it_twelve_latent_caches() -> None:
    spec = glm_5_3_flash()
    assert (spec.mtp_layers, spec.latent_caches) == (1, 12)


def test_pages_chunks_and_windows_are_the_published_rows() -> None:
    rows = glm_5_3_flash().rows
    assert (rows.page, rows.chunk, rows.kda_chunk, rows.verify) == (512, 2_048, 64, 16)


def test_the_trunk_has_the_published_number_of_parameters() -> None:
    """The bf16 files hold 642.65 GB, 321.32 billion values: 7.43 of them the next-token layer,
    0.56 the vision tower. Fails when any width, count or vocabulary is off."""
    spec = glm_5_3_flash()
    hidden, width = spec.hidden_size, spec.kda_width
    kda = 4 * hidden * width + hidden * spec.kda_heads + 3 * width * spec.conv_width
    kda += 2 * (hidden * spec.kda_head_dim + spec.kda_head_dim * width)
    key, value = spec.heads * spec.nope_dim, spec.heads * spec.v_dim
    dsa = hidden * (spec.q_lora_rank + spec.kv_lora_rank) + spec.q_lora_rank * key
    dsa += spec.kv_lora_rank * (key + value) + value * hidden
    dsa += spec.index_heads * (spec.q_lora_rank * spec.index_dim + hidden)
    dsa += 2 * hidden * spec.index_dim
    expert = 3 * hidden * spec.moe_intermediate_size
    sparse = expert * (spec.n_routed_experts + spec.n_shared_experts)
    sparse += hidden * spec.n_routed_experts
    total = 2 * spec.vocab_size * hidden
    total += len(spec.kda_layers) * kda + len(spec.dsa_layers) * dsa
    total += sum(sparse if one else 3 * hidden * spec.intermediate_size for one in spec.sparse_mlp)
    total += 2 * len(spec.layers) * spec.hc_outputs * spec.streams * hidden
    assert round(total / 1e9, 2) == round(321.32 - 7.43 - 0.56, 2)
