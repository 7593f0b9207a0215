"""Loading: every way of storing gives the same parameters, in bounded memory."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch

from streamglm.errors import CheckpointError
from streamglm.model.spec import ModelSpec
from streamglm.weights import checkpoint
from streamglm.weights.checkpoint import Loaded, Reader, fill, load
from streamglm.weights.fit import plan
from streamglm.weights.headers import catalogue
from streamglm.weights.layout import layout
from support.checkpoints import as_fp8, as_nvfp4, random_tensors, spec_of, tiny_config, write

TEXT = "model.language_model."
EXPERTS = "layers.1.mlp.experts."
CONV = "layers.0.self_attn.conv1d.weight"

Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def spec() -> ModelSpec:
    return spec_of(tiny_config())


@pytest.fixture(scope="module")
def tensors(spec: ModelSpec) -> Tensors:
    return random_tensors(spec, seed=3)


def loaded(folder: Path, tensors: Tensors, *, shards: int = 1) -> Loaded:
    config = tiny_config()
    return load(write(folder, config, tensors, shards=shards), spec_of(config))


def same(left: Tensors, right: Tensors) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[n], right[n]) for n in left)


def test_parameters_are_float32_contiguous_and_of_the_table(
    tmp_path: Path, spec: ModelSpec, tensors: Tensors
) -> None:
    params = loaded(tmp_path, tensors).params
    assert {n: tuple(p.shape) for n, p in params.items()} == layout(spec).params
    assert all(p.dtype == torch.float32 and p.is_contiguous() for p in params.values())


def test_plain_tensors_keep_their_values_and_names(tmp_path: Path, tensors: Tensors) -> None:
    params = loaded(tmp_path, tensors).params
    for name, tensor in tensors.items():
        if ".experts." not in name and "conv1d" not in name:
            assert torch.equal(params[name.removeprefix(TEXT)], tensor.float()), name


def test_experts_are_stacked_gate_rows_first(tmp_path: Path, tensors: Tensors) -> None:
    params = loaded(tmp_path, tensors).params
    part = {
        name: torch.stack([tensors[f"{TEXT}{EXPERTS}{e}.{name}.weight"] for e in range(3)]).float()
        for name in ("gate_proj", "up_proj", "down_proj")
    }
    joined = torch.cat([part["gate_proj"], part["up_proj"]], dim=1)
    assert torch.equal(params[f"{EXPERTS}gate_up_proj"], joined)
    assert torch.equal(params[f"{EXPERTS}down_proj"], part["down_proj"])


def test_convolutions_are_joined_q_then_k_then_v(tmp_path: Path, tensors: Tensors) -> None:
    parts = [tensors[f"{TEXT}layers.0.self_attn.{p}_conv1d.weight"].squeeze(1) for p in "qkv"]
    assert torch.equal(loaded(tmp_path, tensors).params[CONV], torch.cat(parts).float())


@pytest.mark.parametrize("shards", [2, 3, 7])
def test_shards_load_as_one_file_does(tmp_path: Path, tensors: Tensors, shards: int) -> None:
    one = loaded(tmp_path / "one", tensors)
    many = loaded(tmp_path / "many", tensors, shards=shards)
    assert same(one.params, many.params)
    assert one.fingerprint == many.fingerprint


@pytest.mark.parametrize("shards", [1, 2])
def test_fp8_blocks_are_multiplied_by_their_scales(
    tmp_path: Path, tensors: Tensors, shards: int
) -> None:
    """With two shards a tensor and its scales lie in different files."""
    stored = as_fp8(tensors, edge=16)
    params = loaded(tmp_path, stored, shards=shards).params
    name = "layers.0.mlp.gate_proj.weight"  # [40, 32] in a grid of 3 x 2: the last rows are partial
    scales = stored[f"{TEXT}{name}_scale_inv"].repeat_interleave(16, 0).repeat_interleave(16, 1)
    assert torch.equal(params[name], stored[TEXT + name].float() * scales[:40])


@pytest.mark.parametrize("spelling", ["modelopt", "compressed-tensors"])
@pytest.mark.parametrize("shards", [1, 3])
def test_nvfp4_loads_as_its_values(
    tmp_path: Path, tensors: Tensors, spelling: str, shards: int
) -> None:
    """Per tensor: only the routed experts are packed. With shards their scales lie elsewhere."""
    stored = as_nvfp4(tensors, spelling)
    params = loaded(tmp_path, stored, shards=shards).params
    name = f"{TEXT}{EXPERTS}1.up_proj.weight"
    packed = stored[name if spelling == "modelopt" else f"{name}_packed"].int()
    numbers = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    halves = torch.stack([packed & 15, packed >> 4], 2).flatten(1)
    values = numbers[halves & 7] * torch.where(halves > 7, -1.0, 1.0)
    values *= stored[f"{name}_scale"].float().repeat_interleave(16, 1)
    whole = stored.get(f"{name}_scale_2", 1 / torch.tensor(3.3))
    assert torch.allclose(params[f"{EXPERTS}gate_up_proj"][1, 16:], values * whole, rtol=1e-6)
    assert torch.equal(params["norm.weight"], tensors[f"{TEXT}norm.weight"].float())


def test_fp8_blocks_may_name_their_scales_as_compressed_tensors_does(
    tmp_path: Path, tensors: Tensors
) -> None:
    stored = as_fp8(tensors, edge=16)
    named = {name.replace("_scale_inv", "_scale"): value for name, value in stored.items()}
    assert same(loaded(tmp_path / "inv", stored).params, loaded(tmp_path / "scale", named).params)


def test_half_precision_is_read_too(tmp_path: Path, tensors: Tensors) -> None:
    stored = {n: t.half() if t.dtype == torch.bfloat16 else t for n, t in tensors.items()}
    params = loaded(tmp_path, stored).params
    assert torch.equal(params["norm.weight"], tensors[f"{TEXT}norm.weight"].half().float())


JOINED_ALONG = {  # by the end of a parameter's name; ranks hold all others whole
    "lm_head.weight": 0,
    "q_proj.weight": 0,
    "k_proj.weight": 0,
    "v_proj.weight": 0,
    "b_proj.weight": 0,  # of KDA, and f_b, g_b, q_b, kv_b
    "A_log": 0,
    "dt_bias": 0,
    "o_proj.weight": 1,
    "gate_proj.weight": 0,
    "up_proj.weight": 0,
    "down_proj.weight": 1,
    "experts.down_proj": 2,
}


def joined(name: str, parts: list[torch.Tensor]) -> torch.Tensor:
    """Rank parts of a parameter put together again, by rules of this file's own."""
    if name.endswith("experts.gate_up_proj"):
        halves = [part.chunk(2, dim=1) for part in parts]
        return torch.cat([*(gate for gate, _ in halves), *(up for _, up in halves)], dim=1)
    if name.endswith("conv1d.weight"):
        thirds = [part.chunk(3) for part in parts]
        return torch.cat([third[i] for i in range(3) for third in thirds])
    axes = [axis for ending, axis in JOINED_ALONG.items() if name.endswith(ending)]
    if axes:
        return torch.cat(parts, dim=axes[0])
    assert all(torch.equal(part, parts[0]) for part in parts), name
    return parts[0]


def stored_as(form: str, tensors: Tensors) -> Tensors:
    if form == "bf16":
        return tensors
    return as_fp8(tensors, edge=16) if form == "fp8" else as_nvfp4(tensors, form)


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("form", ["bf16", "fp8", "modelopt", "compressed-tensors"])
def test_parts_of_all_ranks_join_to_the_whole(
    tmp_path: Path, spec: ModelSpec, tensors: Tensors, world: int, form: str
) -> None:
    """Five heads over two or three ranks, 40 and 16 rows over three: shares are uneven."""
    write(tmp_path, tiny_config(), stored_as(form, tensors), shards=2)
    whole = load(tmp_path, spec).params
    ranks = [load(tmp_path, spec, rank=r, world=world).params for r in range(world)]
    for name, param in whole.items():
        assert torch.equal(joined(name, [rank[name] for rank in ranks]), param), name


def test_without_a_next_token_layer_the_trunk_loads(tmp_path: Path, tensors: Tensors) -> None:
    trunk = {n: t for n, t in tensors.items() if ".layers.4." not in n}
    result = loaded(tmp_path, trunk)
    assert not result.mtp
    assert not any(name.startswith("layers.4.") for name in result.params)


def test_vision_tensors_are_counted_and_not_loaded(tmp_path: Path, tensors: Tensors) -> None:
    result = loaded(tmp_path, tensors | {"model.visual.merger.proj.weight": torch.zeros(3, 3)})
    assert result.skipped_vision == 1
    assert result.params.keys() == loaded(tmp_path / "without", tensors).params.keys()


def test_progress_rises_to_the_whole(tmp_path: Path, spec: ModelSpec, tensors: Tensors) -> None:
    told: list[tuple[int, int]] = []
    write(tmp_path, tiny_config(), tensors)
    load(tmp_path, spec, progress=lambda done, total: told.append((done, total)))
    total = sum(t.nbytes for t in tensors.values())
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert told[-1] == (total, total)


class CountingReader(Reader):
    """Notes each range that is read."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: list[tuple[str, int, int]] = []

    def read(self, file: Path, start: int, into: memoryview) -> None:
        self.ranges.append((file.name, start, start + len(into)))
        super().read(file, start, into)


@pytest.mark.parametrize("band", [1, 100, 1000])
def test_bytes_are_read_once_and_a_band_at_a_time(
    tmp_path: Path,
    spec: ModelSpec,
    tensors: Tensors,
    band: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fails when a tensor is read whole, twice, or not to its end."""
    write(tmp_path, tiny_config(), tensors, shards=2)
    whole = load(tmp_path, spec)
    monkeypatch.setattr(checkpoint, "BAND_BYTES", band)
    with CountingReader() as reader:
        params, fingerprint = fill(
            plan(spec, catalogue(tmp_path)), reader, lambda done, total: None
        )
    longest_row = 4 * 4 * 32 * 2  # a row of hc_attn_fn in BF16 is the longest of all
    assert max(stop - start for _, start, stop in reader.ranges) <= max(band, longest_row)
    spans = sorted(reader.ranges)
    assert all(a[0] != b[0] or a[2] <= b[1] for a, b in pairwise(spans))
    assert sum(stop - start for _, start, stop in spans) == sum(t.nbytes for t in tensors.values())
    assert same(params, whole.params)
    assert fingerprint == whole.fingerprint


def test_a_rank_reads_only_its_rows(tmp_path: Path, spec: ModelSpec, tensors: Tensors) -> None:
    write(tmp_path, tiny_config(), tensors)
    files = catalogue(tmp_path)
    name = f"{TEXT}layers.0.self_attn.q_proj.weight"
    with CountingReader() as reader:
        fill(plan(spec, files, rank=1, world=4), reader, lambda done, total: None)
    stored = files.tensors[name]
    inside = [r for r in reader.ranges if stored.start <= r[1] < stored.stop]
    quarter = (stored.stop - stored.start) // 4
    assert [(s, e) for _, s, e in inside] == [(stored.start + quarter, stored.start + 2 * quarter)]


def test_a_file_that_shrinks_after_the_check_is_named(
    tmp_path: Path, spec: ModelSpec, tensors: Tensors
) -> None:
    write(tmp_path, tiny_config(), tensors)
    todo = plan(spec, catalogue(tmp_path))
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    with (
        Reader() as reader,
        pytest.raises(CheckpointError, match=r"model\.safetensors: the file ended early"),
    ):
        fill(todo, reader, lambda done, total: None)


def test_the_fingerprint_follows_one_changed_bit(tmp_path: Path, tensors: Tensors) -> None:
    before = loaded(tmp_path / "before", tensors).fingerprint
    changed = dict(tensors)
    changed["lm_head.weight"] = tensors["lm_head.weight"].clone()
    changed["lm_head.weight"].view(torch.int16)[69, 31] ^= 1
    assert loaded(tmp_path / "after", changed).fingerprint != before
    assert loaded(tmp_path / "again", tensors).fingerprint == before


def test_the_fingerprint_follows_the_format(tmp_path: Path, tensors: Tensors) -> None:
    """Equal values stored otherwise are another checkpoint."""
    wide = tensors | {"lm_head.weight": tensors["lm_head.weight"].float()}
    before, after = loaded(tmp_path / "a", tensors), loaded(tmp_path / "b", wide)
    assert torch.equal(before.params["lm_head.weight"], after.params["lm_head.weight"])
    assert before.fingerprint != after.fingerprint
