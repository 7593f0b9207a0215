"""Ranks on kernels: the CPU's logits at the same number of ranks, and the law of exactness on each.

Kernels run under Triton's interpreter, ranks as threads (`support.peers`); every step also compares
the ranks with one another. Heads are uneven, so that a rank has blank ones in its states. What NCCL
and graphs do is not shown here.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from streamglm.kernels.matrix import Format, Matrix
from streamglm.model.spec import ModelSpec
from streamglm.weights import packed
from support.checkpoints import as_fp8, as_nvfp4, random_tensors, spec_of, tiny_config, write
from support.on_device import OnDevice

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not there for this machine"
)
ROWS = 69
"""Of a prompt: beyond the first page (64)."""
Made = Callable[[int], Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Two layers of so many heads, with a next-token layer; dense up to 131 tokens, since ranks all
    select alike and the interpreter takes longest for it."""

    def make(heads: int) -> Path:
        config = _config(heads)
        return write(tmp_path_factory.mktemp("ranks"), config, _tensors(config))

    return make


def _config(heads: int, **text: int) -> dict[str, dict[str, object]]:
    config = tiny_config(
        num_attention_heads=heads,
        num_hidden_layers=2,
        layer_types=["linear_attention", "deepseek_sparse_attention"],
        mlp_layer_types=["dense", "sparse"],
        indexer_types=["full"] * 2,
        index_topk=128,
        **text,
    )
    config["text_config"]["linear_attn_config"] |= {"num_heads": heads}
    return config


def _tensors(config: dict[str, dict[str, object]]) -> dict[str, torch.Tensor]:
    tensors = random_tensors(spec_of(config))
    for name, one in tensors.items():
        if one.ndim > 1 and not name.endswith(("_base", "_scale", "ape")):
            one *= one.shape[-1] ** -0.5
    return tensors


@pytest.fixture(scope="module")
def device() -> Iterator[OnDevice]:
    """The process that interprets kernels."""
    with OnDevice() as started:
        yield started


@pytest.mark.parametrize(("heads", "world"), [(7, 2), (7, 3)])
def test_logits_are_those_of_as_many_cpu_ranks(
    device: OnDevice, made: Made, heads: int, world: int
) -> None:
    found = device.tell("compared", made(heads), rows=21, windows=3, world=world)
    assert found["distance"] < 1e-4
    assert found["tokens"][0] == found["tokens"][1]


def test_chunks_and_neighbours_change_no_bit_of_a_rank(device: OnDevice, made: Made) -> None:
    """In bfloat16, where a part that is rounded before it is added is an error in `ThreadPeer`."""
    found = device.tell("company", made(3), rows=ROWS, cut=64, world=2, half=1)
    assert found["in chunks"] == found["alone"]
    assert found["beside another"] == found["alone"]


def test_a_verify_window_of_ranks_leaves_what_windows_of_one_row_leave(
    device: OnDevice, made: Made
) -> None:
    found = device.tell("verified", made(3), rows=22, world=2)
    assert found["drafted"] == found["serial"]


def test_drafts_and_keyed_draws_are_those_of_cpu_ranks(device: OnDevice, made: Made) -> None:
    found = device.tell("drafted", made(3), rows=21, world=2)
    assert found["kernels"] == found["host"]


def test_a_lane_goes_on_from_what_ranks_kept(device: OnDevice, made: Made) -> None:
    """Red where a kernel takes the place of a blank head for the next lane's first."""
    found = device.tell("resumed", made(3), rows=ROWS, world=2)
    assert len(set(found.values())) == 1, found


@pytest.mark.parametrize("form", ["fp8", "modelopt", "compressed-tensors"])
def test_packed_experts_are_shared_as_they_lie(device: OnDevice, tmp_path: Path, form: str) -> None:
    """Both halves of each stay packed, and give the logits of the CPU, which unpacks them."""
    config = _config(2, hidden_size=128, moe_intermediate_size=256)
    tensors = _tensors(config)
    stored = as_fp8(tensors, edge=128) if form == "fp8" else as_nvfp4(tensors, form)
    for name, one in stored.items():
        if name.endswith(("_scale_inv", "_scale_2")):
            one *= 0.01
    folder = write(tmp_path, config, stored)
    for rank in range(2):
        params = packed.read(
            folder, ModelSpec.from_folder(folder), torch.device("cpu"), rank=rank, world=2
        ).params
        for part in ("gate_up", "down"):
            stack = params[f"layers.1.mlp.experts.{part}_proj"]
            assert isinstance(stack, Matrix)
            assert stack.format is (Format.FP8 if form == "fp8" else Format.NVFP4)
            assert (stack.width, stack.depth) == ((256, 128) if part == "gate_up" else (128, 128))
    found = device.tell("windows", folder, count=2, world=2)
    assert found["distance"] < 1e-4
