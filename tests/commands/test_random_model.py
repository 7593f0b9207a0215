"""`random:` models: real shapes without a checkpoint, cut to some layers, experts in any format.

The shapes here are a tiny folder's, which has a `config.json` and no weights.
"""

from __future__ import annotations

import json

import pytest
import torch

from streamglm import cli, nano
from streamglm.commands.checkpoint import read_checkpoint
from streamglm.commands.planning import spec_of
from streamglm.config import Settings
from streamglm.errors import CheckpointError, SettingError
from streamglm.kernels.matrix import Matrix
from streamglm.model.shapes import GLM_5_3_FLASH
from streamglm.weights import made, random
from streamglm.weights.layout import layout
from streamglm.weights.packed import total_bytes
from support.checkpoints import tiny_config
from support.server import serving

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("shapes")
    (folder / "config.json").write_text(json.dumps(tiny_config()))
    return f"random:{folder}"


def settings(model: str, **given: object) -> Settings:
    return Settings(model=model, device="cpu", **given)  # type: ignore[arg-type]


def test_the_layers_asked_for_are_the_first() -> None:
    whole, cut = (spec_of(settings(GLM_5_3_FLASH, layers=n)) for n in (None, 8))
    assert len(whole.layers) == 45
    assert cut.layers == whole.layers[:8]
    assert cut.sparse_mlp == whole.sparse_mlp[:8] == (False,) * 3 + (True,) * 5


@pytest.mark.parametrize("experts", random.FORMATS)
def test_a_plan_has_the_bytes_that_are_made(shapes: str, experts: str) -> None:
    checkpoint = read_checkpoint(settings(shapes, expert_format=experts))
    held = random.held(checkpoint.spec, torch.device("cpu"), experts)
    assert checkpoint.files.total_bytes == total_bytes(held.params.values())
    assert checkpoint.files.params == made.shapes(checkpoint.spec)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("experts", random.FORMATS)
def test_ranks_make_the_parts_of_one_model(shapes: str, experts: str, world: int) -> None:
    """What a checkpoint of the same values would give each, in the bytes that its plan says. Red
    where each rank makes numbers of its own."""
    checkpoint = read_checkpoint(settings(shapes, expert_format=experts, ranks=world))
    spec = checkpoint.spec
    whole = random.loaded(spec, experts).params
    for rank in range(world):
        held = random.held(spec, CPU, experts, rank=rank, world=world).params
        plan = checkpoint.of(rank, world)
        assert plan.total_bytes == total_bytes(held.values())
        values = random.loaded(spec, experts, rank=rank, world=world).params
        assert {name: tuple(one.shape) for name, one in values.items()} == plan.params
        for source in layout(spec, rank=rank, world=world).sources.values():
            given, own = whole[source.param], values[source.param]
            there = layout(spec).sources[source.name].into
            stack = own.ndim == 3
            expert = source.into[0]
            given, own = (
                one[tuple(slice(span.start, span.stop) for span in (expert, *spans)[1 - stack :])]
                for one, spans in ((given, there[stack:]), (own, source.into[stack:]))
            )
            if source.cut is not None:
                axis = source.cut + stack
                given = given.narrow(axis, source.part.start, source.part.size)
            unpacked = stack and not isinstance(held[source.param], Matrix)
            close = given.bfloat16().float() if unpacked else given
            assert torch.equal(own, close), source.name


@pytest.mark.parametrize("experts", random.FORMATS)
def test_the_cpu_has_the_values_of_a_gpu(shapes: str, experts: str) -> None:
    spec = spec_of(settings(shapes))
    held = random.held(spec, torch.device("cpu"), experts).params
    for name, value in random.loaded(spec, experts).params.items():
        packed = held[name]
        same = packed.values() if isinstance(packed, Matrix) else packed.float()
        assert value.dtype == torch.float32
        assert torch.equal(value, same.reshape(value.shape)), name


def test_it_serves_ids_and_repeats_itself(shapes: str) -> None:
    """Two servers make the same weights; the second has other lanes, and a neighbour."""
    asked = {"max_tokens": 12, "temperature": 0.8, "seed": 5, "ignore_eos": True}
    told = []
    for lanes in (1, 3):
        flags = [shapes, "--layers", "3", "--expert-format", "nvfp4", "--parallel", str(lanes)]
        with serving(*flags, "--context", "512", "--device", "cpu") as server:
            told.append(server.complete(list(range(2, 60)), **asked))
    assert told[0]["streamglm"]["token_sha"] == told[1]["streamglm"]["token_sha"]
    assert len(told[0]["choices"][0]["token_ids"]) == 12


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"layers": 1}, "--layers is 1, and the model has 4: 3 is the least"),
        ({"layers": 7}, "--layers is 7, and the model has 4"),
    ],
)
def test_what_cannot_be_made_is_refused(shapes: str, given: dict[str, int], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        read_checkpoint(settings(shapes, **given))


@pytest.mark.parametrize(
    ("command", "flag", "value"),
    [
        ("plan", "--layers", "4"),
        ("serve", "--layers", "4"),
        ("serve", "--expert-format", "fp8"),
        ("check", "--expert-format", "nvfp4"),
    ],
)
def test_a_checkpoint_is_served_as_it_lies(
    command: str, flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    room = ["--room-gib", "1"] if command == "plan" else []
    assert cli.main([command, str(nano.folder()), *room, flag, value]) == 1
    assert f"{flag} is {value}, and " in capsys.readouterr().err


def test_shapes_that_nobody_knows_are_refused() -> None:
    with pytest.raises(CheckpointError, match=f"random:glm-9: no such shapes; {GLM_5_3_FLASH}"):
        read_checkpoint(settings("random:glm-9"))
