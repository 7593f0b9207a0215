"""The Triton kernels against plain torch, in Triton's interpreter, which needs no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

_CHECK = """
import torch
from streamglm.nano.training import gpu, ops
torch.set_num_threads(1)
random = torch.Generator().manual_seed(0)
def draw(*shape):
    return torch.randn(*shape, generator=random)
def same(one, two):
    assert torch.allclose(one, two, atol=3e-5), (one - two).abs().max()
def gradients(function, inputs, weight):
    inputs = [x.clone().requires_grad_() for x in inputs]
    out = function(*inputs)
    return out.detach(), torch.autograd.grad((out * weight).sum(), inputs)
x, weight = draw(130, 4, 4) * 2, draw(130, 4, 4)
results = [gradients(lambda x: f(x, 1e-6, 20), [x], weight) for f in (ops.sinkhorn, gpu.sinkhorn)]
same(results[0][0], results[1][0]); same(results[0][1][0], results[1][1][0])
start = torch.zeros(80, dtype=torch.int32); start[48:] = 48
q, weights, pools = draw(80, 2, 16), draw(80, 2), draw(20, 16)
scores = [f(q, weights, pools, start, 64, 0.25) for f in (ops.index_scores, gpu.index_scores)]
assert torch.equal(scores[0] == -torch.inf, scores[1] == -torch.inf)
same(scores[0].nan_to_num(neginf=0), scores[1].nan_to_num(neginf=0))
some = ops.choose(scores[0], start, 16); some[:, 3:] = -1
query, latent, weight = draw(80, 3, 16), draw(80, 16), draw(80, 3, 16)
for chosen in (some, ops.choose_all(start, 16)):
    for first in (0, 1):
        results = [
            gradients(lambda q, c: f(q, c, start, chosen, 0.2, first), [query, latent], weight)
            for f in (ops.attend, gpu.attend)
        ]
        same(results[0][0], results[1][0])
        for one, two in zip(results[0][1], results[1][1]):
            same(one, two)
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_kernels_and_their_gradients_are_those_of_plain_torch() -> None:
    """In a process of its own: the interpreter is chosen when Triton is first imported."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", _CHECK], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
