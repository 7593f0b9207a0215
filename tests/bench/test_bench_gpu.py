"""What `bench decode` makes of a window on a GPU: the experts it counts, its floor, the host's
parts of a step."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench import gpu, gpu_window
from streamglm.kernels import experts
from streamglm.model.device.graphs import Captured
from streamglm.model.device.index import WindowBuffers
from streamglm.model.shapes import glm_5_3_flash


def test_experts_are_counted_once_a_layer_and_only_those_of_real_rows() -> None:
    logits = torch.tensor([[5.0, 4.0, 1.0, 0.0], [5.0, 1.0, 4.0, 0.0], [0.0, 0.0, 5.0, 6.0]])

    def window() -> None:
        for rows in (logits, logits[[2, 0, 1]]):
            experts.choose(rows, torch.zeros(4), count=2, normalise=True, factor=1.0)

    with gpu.choices(2) as found:
        window()
    window()
    assert found == [3, 4]


def test_a_floor_has_the_bytes_of_what_was_chosen() -> None:
    """Two layers whose stacks hold 4 experts of 10 and 30 bytes, and of 20 and 60."""
    stacks = [SimpleNamespace(bytes=4 * one, count=4) for one in (10, 30, 20, 60)]
    shape = SimpleNamespace(
        kda_state_bytes=0,
        conv_bytes=0,
        rows=SimpleNamespace(latent_bytes=lambda rank: 0, key_itemsize=0),
    )
    model: Any = SimpleNamespace(
        spec=glm_5_3_flash(8),
        executor=SimpleNamespace(pool=SimpleNamespace(shape=shape)),
        matrices=lambda: (1000, stacks),
    )
    assert gpu.floor_bytes(model, 1, 8192, [2, 3]) == 1000 + 2 * (10 + 30) + 3 * (20 + 60)
    with pytest.raises(ValueError, match="zip"):
        gpu.floor_bytes(model, 1, 8192, [2, 3, 4])


def test_rows_that_draw_for_themselves_choose_so_many_experts() -> None:
    spec = replace(glm_5_3_flash(8), n_routed_experts=4, num_experts_per_tok=2)
    assert [gpu.expected(spec, rows) for rows in (1, 2, 3)] == [2.0, 3.0, 3.5]


def test_parts_of_a_step_are_between_its_marks() -> None:
    """Medians over three steps, of which the second takes ten times as long."""
    spans, marks, at = [], [], 0.0
    for scale in (1.0, 10.0, 1.0):
        began = at
        for part, seconds in zip(gpu_window.PARTS, (3e-6, 1e-6, 2e-6, 8e-6, 4e-6), strict=True):
            at += scale * seconds
            marks.append((part, at))
        spans.append((began, marks.pop()[1]))
        at += 1.0
    found = gpu_window.parts(spans, marks)
    assert found == pytest.approx(
        {"prepare": 3.0, "copy": 1.0, "launch": 2.0, "wait": 8.0, "after": 4.0}, abs=0.01
    )
    assert gpu_window.host_line({"width": 1, "context": 8192, "host_us": found}) == (
        "host, 1 rows at 8,192: prepare 3, copy 1, launch 2, wait 8, after 4 us"
    )
    with pytest.raises(AssertionError):
        gpu_window.parts(spans, marks[1:])


def test_marks_are_where_a_window_copies_launches_and_waits() -> None:
    buffers = WindowBuffers(2, 4, torch.device("cpu"))
    graph: Captured[torch.Tensor] = object.__new__(Captured)

    def step() -> list[int]:
        buffers.settle()
        buffers.load()
        buffers.ask(graph.replay())
        return buffers.told()

    with gpu_window.marking(lambda self: torch.tensor([7, -1])) as marks:
        assert [step(), step()] == [[7, -1]] * 2
    assert [part for part, _ in marks] == [*gpu_window.PARTS[:-1]] * 2
    assert [at for _, at in marks] == sorted(at for _, at in marks)
