"""The executor on kernels gives what the CPU's path gives, and keeps the law of exactness itself.

The kernels run under Triton's interpreter in a process of its own (`support.on_device`), in
float32, over poisoned pages and states. What only a GPU can show (graphs, bfloat16 at real sizes,
speed) is not shown here.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from streamglm import kernels
from streamglm.errors import CheckpointError, SettingError
from streamglm.kernels import matrix
from streamglm.model.device import passes
from streamglm.model.device.weights import Product, Weights, halves
from streamglm.model.executor import Executor
from streamglm.model.spec import ModelSpec
from streamglm.pool.memory import Memory
from streamglm.sampling.lane import LaneSampler
from streamglm.weights import packed
from support.checkpoints import random_tensors, spec_of, tiny_config, write
from support.on_device import OnDevice

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not there for this machine"
)
ROWS = 69
"""Of a prompt: beyond the first page (64), and its last rows beyond the dense limit (67)."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers of two heads, with a next-token layer."""
    return made(tmp_path_factory.mktemp("device"))


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, dense up to 131 tokens: selection is what the interpreter takes longest for."""
    return made(tmp_path_factory.mktemp("wide"), index_topk=128)


def made(folder: Path, **text: int) -> Path:
    config = tiny_config(
        num_attention_heads=2,
        num_hidden_layers=2,
        layer_types=["linear_attention", "deepseek_sparse_attention"],
        mlp_layer_types=["dense", "sparse"],
        indexer_types=["full"] * 2,
        **text,
    )
    config["text_config"]["linear_attn_config"] |= {"num_heads": 2}
    tensors = random_tensors(spec_of(config))
    for name, one in tensors.items():
        if one.ndim > 1 and not name.endswith(("_base", "_scale", "ape")):
            one *= one.shape[-1] ** -0.5
    return write(folder, config, tensors)


@pytest.fixture(scope="module")
def device() -> Iterator[OnDevice]:
    """The process that interprets kernels."""
    with OnDevice() as started:
        yield started


def test_logits_are_the_cpus_to_rounding_and_greedy_tokens_are_equal(
    device: OnDevice, folder: Path
) -> None:
    found = device.tell("compared", folder, rows=ROWS, windows=6)
    assert found["distance"] < 1e-4
    assert found["tokens"][0] == found["tokens"][1]


def test_so_are_they_with_every_operator_by_its_kernel(device: OnDevice, folder: Path) -> None:
    """In windows, which the interpreter gets through: a prompt of one row has a tile of 64."""
    found = device.tell("windows", folder, count=5, kernels=1)
    assert found["distance"] < 1e-4


def test_chunks_and_neighbours_change_no_bit(device: OnDevice, folder: Path) -> None:
    found = device.tell("company", folder, rows=ROWS, cut=64)
    assert found["in chunks"] == found["alone"]
    assert found["beside another"] == found["alone"]


def test_a_verify_window_leaves_what_as_many_windows_of_one_row_leave(
    device: OnDevice, folder: Path
) -> None:
    """Also of the lane beside it that has one row. Red without the replay, and with a replay of
    the lanes that had drafts alone."""
    found = device.tell("verified", folder, rows=22)
    assert found["drafted"] == found["serial"]


def test_drafts_and_keyed_draws_are_the_cpus(device: OnDevice, folder: Path) -> None:
    found = device.tell("drafted", folder, rows=21)
    assert found["kernels"] == found["host"]


def test_a_lane_goes_on_from_slots_buffers_and_host_memory(device: OnDevice, wide: Path) -> None:
    found = device.tell("resumed", wide, rows=ROWS)
    assert len(set(found.values())) == 1, found


def test_joined_matrices_are_the_parts_side_by_side() -> None:
    """Of every format, and what does not join stays a matrix of its own. Red with NVFP4 joined,
    whose parts have scales of all of their own."""
    torch.manual_seed(0)
    numbers = torch.randn(256, 128).to(torch.float8_e4m3fn)
    fp8 = [matrix.fp8(numbers[:128], torch.rand(1, 1)), matrix.fp8(numbers[128:], torch.rand(1, 1))]
    packed_rows = torch.randint(0, 256, (2, 16, 128), dtype=torch.uint8)
    scales = torch.rand(2, 16, 16).to(torch.float8_e4m3fn)
    nvfp4 = [matrix.nvfp4(packed_rows[i], scales[i], torch.rand(1) + i) for i in range(2)]
    plain = [matrix.plain(torch.randn(n, 128)) for n in (5, 7)]
    for parts, kept in ((fp8, 1), (nvfp4, 2), (plain, 1), ([plain[0], fp8[0]], 2)):
        product = Product.of(*parts)
        assert len(product.parts) == kept
        x = torch.randn(3, parts[0].depth)
        whole = torch.cat([one.values()[0] for one in parts])
        assert torch.allclose(product(x, wide=False), x @ whole.t(), atol=1e-4)
        both = halves(*parts).values()[0] if parts[0].format is parts[1].format else whole
        assert torch.equal(both, whole)


def test_parameters_are_named_when_they_do_not_fit() -> None:
    weights = Weights({"a.b": torch.zeros(3, 4)}, torch.float32)
    with pytest.raises(CheckpointError, match=r"a\.c: the model needs it"):
        weights.under("a").plain("c", 3, 4)
    with pytest.raises(CheckpointError, match=r"a\.b: shape \[3, 4\], and .* \[4, 3\]"):
        weights.under("a").stack("b", 4, 3)
    with pytest.raises(CheckpointError, match=r"a\.d: 1 tensors .* no place"):
        Weights({"a.d": torch.zeros(1)}, torch.float32).finish()


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ({"kda_chunk_rows": 32}, r"kda_chunk_rows is 32, and kernels take 64 rows"),
        ({"window_rows": 33}, r"window_rows is 33, .* 32 rows at most"),
    ],
)
def test_what_a_gpu_does_not_run_is_refused_by_name(rows: dict[str, int], told: str) -> None:
    config = tiny_config()
    config["streamglm"] |= rows
    with pytest.raises(SettingError, match=told):
        Executor(
            spec_of(config),
            {},
            pages=2,
            lanes=1,
            sampler=LaneSampler,
            memory=Memory(torch.device("cpu"), torch.float32, kernels=True),
        )


def test_packed_parameters_have_a_fingerprint_of_their_bytes(folder: Path) -> None:
    cpu, spec = torch.device("cpu"), ModelSpec.from_folder(folder)
    found = [packed.read(folder, spec, cpu).fingerprint for _ in range(2)]
    assert found[0] == found[1]
    assert len(found[0]) == 64


def test_states_under_other_kernels_are_another_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tile that is changed may change bits; red where torch and Triton alone are told."""
    (tmp_path / "linear").mkdir()
    (tmp_path / "__init__.py").write_text("")
    file = tmp_path / "linear" / "kernel.py"
    monkeypatch.setattr(kernels, "__file__", str(tmp_path / "__init__.py"))
    found = []
    for tile in (16, 32, 16):
        file.write_text(f"TILE = {tile}\n")
        found.append(passes._numerics(Memory(torch.device("cpu"), torch.bfloat16, True)))
    assert found[0] == found[2] != found[1]
