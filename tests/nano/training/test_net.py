"""The training model: equal to transformers, to itself token by token, and able to learn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from streamglm.model.spec import ModelSpec
from streamglm.nano.training import backend, generate, loop, ops, weights
from streamglm.nano.training.batches import Packer
from streamglm.nano.training.layout import Layout
from streamglm.nano.training.net import Net, Row, Selection
from streamglm.nano.training.optim import Optimizer, orthogonal
from streamglm.nano.training.schedule import PHASES, Course

CPU = torch.device("cpu")


def ids(count: int, seed: int) -> list[int]:
    return torch.randint(0, 2000, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def logits(net: Net, row: Row, pools: int = 8) -> Tensor:
    with torch.no_grad():
        return ops.linear(net.hidden(row, Selection(pools)), net.params["lm_head.weight"])


@pytest.fixture
def net(spec: ModelSpec, params: dict[str, Tensor]) -> Net:
    return Net(spec, params, backend.plain())


def test_logits_are_those_of_transformers(
    net: Net,
    spec: ModelSpec,
    params: dict[str, Tensor],
    tmp_path: Path,
    small_config: dict[str, object],
) -> None:
    """Sparse selection included: 64 tokens, of which 32 and the unfinished pool are seen."""
    transformers = pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(json.dumps(small_config))
    weights.save(spec, params, tmp_path / "model.safetensors")
    net = Net(spec, weights.load(spec, tmp_path / "model.safetensors"), backend.plain())
    oracle = transformers.AutoModelForImageTextToText.from_pretrained(tmp_path, dtype=torch.float32)
    prompt = ids(64, 1)
    with torch.no_grad():
        wanted = oracle.eval()(input_ids=torch.tensor([prompt])).logits[0]
    got = logits(net, generate.flat([prompt], CPU))
    assert torch.allclose(got, wanted, atol=2e-4)


def test_neighbours_in_the_row_change_nothing(net: Net) -> None:
    one, two = ids(48, 1), ids(80, 2)
    together = logits(net, generate.flat([one, two], CPU))
    assert torch.allclose(together[:48], logits(net, generate.flat([one], CPU)), atol=1e-5)
    assert torch.allclose(together[48:], logits(net, generate.flat([two], CPU)), atol=1e-5)


def test_selection_matters_beyond_its_size_only(net: Net) -> None:
    row = generate.flat([ids(96, 4)], CPU)
    sparse, dense = logits(net, row, 8), logits(net, row, 24)
    assert torch.allclose(sparse[:35], dense[:35], atol=1e-5)
    assert not torch.allclose(sparse[40:], dense[40:], atol=1e-3)


def test_a_reply_token_by_token_is_that_of_the_whole_row(net: Net) -> None:
    """Prompts of every length modulo 4 and 16, one batch."""
    prompts = [ids(n, n) for n in (17, 33, 50, 64, 79)]
    for prompt, reply in zip(
        prompts, generate.greedy(net, prompts, [], 6, Selection(8)), strict=True
    ):
        best = logits(net, generate.flat([prompt + reply], CPU)).argmax(-1)
        assert reply == best[len(prompt) - 1 : len(prompt) + len(reply) - 1].tolist()


def test_prompts_that_begin_alike_are_answered_as_if_alone(net: Net) -> None:
    begin = ids(300, 1)
    prompts = [begin + ids(9, 2), begin + ids(20, 3), begin + ids(14, 4), ids(40, 5)]
    alone = [generate.greedy(net, [prompt], [], 4, Selection(8))[0] for prompt in prompts]
    assert generate.greedy(net, prompts, [], 4, Selection(8)) == alone


def test_a_reply_ends_at_an_end_token(net: Net) -> None:
    prompt = ids(20, 3)
    free = generate.greedy(net, [prompt], [], 5, Selection(8))[0]
    assert (
        generate.greedy(net, [prompt], [free[2]], 5, Selection(8))[0]
        == free[: free.index(free[2]) + 1]
    )


def test_the_first_row_of_the_draft_layer_is_empty(net: Net) -> None:
    """What precedes a conversation must not reach its drafts: its first row is never attended."""
    prompt = ids(40, 6)
    row = generate.flat([prompt], CPU)
    with torch.no_grad():
        hidden = net.hidden(row, Selection(8))
        drafted = net.draft_hidden(row, hidden, Selection(8))
        changed = hidden.clone()
        changed[-1] += 1.0  # pairs with no token of this row
        assert torch.equal(net.draft_hidden(row, changed, Selection(8)), drafted)
        other = generate.flat([[prompt[0] + 1, *prompt[1:]]], CPU)
        assert torch.allclose(net.draft_hidden(other, hidden, Selection(8))[1:], drafted[1:])


def test_weights_come_back_from_a_checkpoint(
    spec: ModelSpec, params: dict[str, Tensor], tmp_path: Path
) -> None:
    weights.save(spec, params, tmp_path / "model.safetensors")
    back = weights.load(spec, tmp_path / "model.safetensors")
    assert back.keys() == params.keys()
    for name, p in params.items():
        exact = p if name.endswith(weights.FLOAT32) else p.bfloat16().float()
        assert torch.equal(back[name], exact), name


def test_every_learned_parameter_gets_a_gradient(
    spec: ModelSpec, params: dict[str, Tensor], layout: Layout
) -> None:
    learned = {
        n: p.requires_grad_(not n.endswith("_bias") or "norm" in n) for n, p in params.items()
    }
    packed = Packer(layout, 512, 16).row(PHASES[0], 1)
    outcome = Net(spec, learned, backend.plain()).outcome(
        loop.to_device(packed, 512, CPU), Selection(8), 0.2, 1.0
    )
    outcome.loss.backward()  # type: ignore[no-untyped-call]
    silent = [
        n for n, p in learned.items() if p.requires_grad and (p.grad is None or not p.grad.any())
    ]
    assert silent == []


def test_the_indexers_loss_moves_the_indexer_alone(
    spec: ModelSpec, params: dict[str, Tensor], layout: Layout
) -> None:
    learned = {n: p.requires_grad_(not n.endswith("correction_bias")) for n, p in params.items()}
    packed = Packer(layout, 256, 8).row(PHASES[0], 1)
    net = Net(spec, learned, backend.plain())
    net.outcome(loop.to_device(packed, 512, CPU), Selection(8), 0.0, 1.0)
    torch.stack(net.index_losses).sum().backward()  # type: ignore[no-untyped-call]
    moved = {n for n, p in learned.items() if p.grad is not None and p.grad.any()}
    assert moved
    assert all("indexer" in name for name in moved)


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 8, 24), (24, 8)])
def test_an_update_has_singular_values_near_one(shape: tuple[int, ...]) -> None:
    random = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonal(random))
    assert values.min() > 0.3
    assert values.max() < 1.4


def test_both_rules_lower_a_loss() -> None:
    random = torch.Generator().manual_seed(0)
    wanted = torch.randn(8, 8, generator=random)
    params: Mapping[str, Tensor] = {
        "layers.0.self_attn.q_proj.weight": torch.zeros(8, 8, requires_grad=True),
        "norm.weight": torch.zeros(8, requires_grad=True),
    }
    optimizer = Optimizer(params)

    def loss() -> Tensor:
        product, bias = params.values()
        return (product + bias - wanted).square().mean()

    begun = loss().item()
    for _ in range(100):
        loss().backward()  # type: ignore[no-untyped-call]
        optimizer.step(0.05)
    assert loss().item() < begun / 3


def _trainer(spec: ModelSpec, folder: Path) -> loop.Trainer:
    folder.mkdir(exist_ok=True)
    course = Course(steps=4, tokens=256, tiles=4, warmup=2)
    return loop.Trainer(spec, course, backend.plain(), folder, CPU)


def test_a_resumed_run_ends_where_an_unbroken_one_does(
    spec: ModelSpec, data: Path, tmp_path: Path
) -> None:
    whole = _trainer(spec, tmp_path / "whole")
    whole.run(data, 1, limit=1e9, every=2, say=lambda text: None)
    broken = _trainer(spec, tmp_path / "broken")
    broken.run(data, 1, limit=0, every=2, say=lambda text: None)
    assert broken.step == 1
    again = _trainer(spec, tmp_path / "broken")
    assert again.resume()
    again.run(data, 1, limit=1e9, every=2, say=lambda text: None)
    assert again.step == whole.step == 4
    for name, p in whole.params.items():
        assert torch.equal(p, again.params[name]), name
    assert (tmp_path / "broken" / "loss.svg").read_text().startswith("<svg")
    assert [line["step"] for line in again.log] == [2, 4]


def test_a_lost_loss_goes_back_to_the_last_save_at_half_the_rate(
    spec: ModelSpec, tmp_path: Path
) -> None:
    trainer = _trainer(spec, tmp_path / "run")
    with pytest.raises(FloatingPointError, match="before the first save"):
        trainer.retreat()
    kept = trainer.params["norm.weight"].detach().clone()
    trainer.save()
    with torch.no_grad():
        trainer.params["norm.weight"].fill_(float("nan"))
    trainer.step = 3
    trainer.retreat()
    assert torch.equal(trainer.params["norm.weight"], kept)
    assert (trainer.step, trainer.calm) == (3, 0.5)


def test_the_course_visits_every_phase_and_ends_low() -> None:
    course = Course(steps=1000)
    assert [course.phase(step) for step in range(0, 1000, 1)][-1] is PHASES[-1]
    assert {course.phase(step).longest for step in range(1000)} == {p.longest for p in PHASES}
    assert sum(phase.share for phase in PHASES) == pytest.approx(1)
    assert course.rate_at(0) < course.rate_at(course.warmup) == course.rate
    assert course.rate_at(999) < 0.05 * course.rate
