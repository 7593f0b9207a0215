"""The start-up self-check: which row counts give a row the same bits on this machine.

Owns the probes and what follows from a failure: rows one by one, and a line in the log. Knows the
loaded weights by shape only. What it proves, it proves for the thread count at hand, and for the
shapes of this rank; ranks whose proofs differ take the lower of each pair, for they exchange rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from streamglm.kernels import kda, latent_attention, linear
from streamglm.kernels.arguments import Array
from streamglm.kernels.hyper.reference import half_steps
from streamglm.kernels.linear import HeadWeight, Weight
from streamglm.kernels.pages import plain
from streamglm.kernels.tiling import Tiling, bmm
from streamglm.model.peers import Peers
from streamglm.model.spec import ModelSpec

PROMPT = Tiling((16, 64))
"""Products of a prompt pass: tiles of 64 rows, and of 16 for what experts have left over."""
WINDOW = Tiling((4,))
"""Products of a window pass."""
_PROMPTS = (PROMPT, Tiling((16,)), Tiling((1,)))
_WINDOWS = (WINDOW, Tiling((16,)), Tiling((1,)))
"""What a pass falls back to, step by step."""
_PANELS = 4
"""Panels of a weight that are probed: each is a product of its own, all of one shape."""

Product = Callable[[Array, Weight | HeadWeight, Tiling, bool], Array]
"""(x [M, ...], weight, tiling, whether by numpy) -> [M, ...]"""


@dataclass(frozen=True, slots=True)
class Proof:
    """How the two passes cut their rows."""

    prompt: Tiling
    window: Tiling


def product(x: Array, weight: Weight | HeadWeight, tiling: Tiling, host: bool) -> Array:
    """The products that the model runs."""
    if isinstance(weight, HeadWeight):
        if host:
            return linear.heads(x, weight, tiling)
        return linear.heads(torch.from_numpy(x), weight, tiling).numpy()
    if host:
        return linear.linear(x, weight, tiling)
    return linear.linear(torch.from_numpy(x), weight, tiling).numpy()


def prove(
    weights: Iterable[Weight | HeadWeight],
    spec: ModelSpec,
    log: Callable[[str], None],
    product: Product = product,
) -> Proof:
    """Probe the distinct shapes of `weights`, and log each fallback in one line."""
    shapes = list({_shape(weight): weight for weight in weights}.values())
    shapes = [_cut(weight) for weight in shapes]
    prompt, window = PROMPT, WINDOW
    if not all(_tiles_hold(w, prompt, False, product) for w in shapes):
        prompt = _PROMPTS[1]
        log("self-check: tiles of 16 and 64 rows differ in bits; prompts run in tiles of 16")
        if not all(_tiles_hold(w, prompt, False, product) for w in shapes):
            prompt = _PROMPTS[2]
            log("self-check: a row's bits depend on its tile; prompts run row by row")
    if not all(_tiles_hold(w, window, True, product) for w in shapes):
        window = _WINDOWS[1]
        log("self-check: a row's bits depend on its tile of 4; windows run in tiles of 16")
        if not all(_tiles_hold(w, window, True, product) for w in shapes):
            window = _WINDOWS[2]
            log("self-check: a row's bits depend on its tile of 16; windows run row by row")
    if not prompt_entries_hold(spec):
        prompt = replace(prompt, entries=False)
        log("self-check: batched products depend on the batch; prompts run entry by entry")
    if not window_entries_hold(spec):
        window = replace(window, entries=False)
        log("self-check: a lane's bits depend on the lanes beside it; windows run lane by lane")
    return Proof(prompt, window)


def agreed(proof: Proof, peers: Peers, log: Callable[[str], None]) -> Proof:
    """What holds on every rank: each has a proof of its own, and calls this at the same time."""
    falls = [
        *_falls(proof.prompt, _PROMPTS),
        *_falls(proof.window, _WINDOWS),
    ]
    all_falls = peers.join(np.array([falls], np.float32), [len(falls)] * peers.world)
    prompt, prompts, window, windows = all_falls.reshape(peers.world, -1).max(0).astype(int)
    common = Proof(
        replace(_PROMPTS[prompt], entries=not prompts),
        replace(_WINDOWS[window], entries=not windows),
    )
    if common != proof:
        log("self-check: a row's bits depend on more at another rank; all compute as that one does")
    return common


def _falls(tiling: Tiling, steps: Sequence[Tiling]) -> tuple[int, bool]:
    """How far a pass has fallen back: in tiles, and whether in entries."""
    return [step.sizes for step in steps].index(tiling.sizes), not tiling.entries


def _shape(weight: Weight | HeadWeight) -> tuple[object, ...]:
    return type(weight), weight.host.shape


def _cut(weight: Weight | HeadWeight) -> Weight | HeadWeight:
    """A few panels of the weight, or the weight of heads as it is."""
    if isinstance(weight, HeadWeight):
        return weight
    panels = weight.panels[:_PANELS]
    return Weight(panels, panels.numpy(), panels.shape[0] * panels.shape[2])


def _tiles_hold(weight: Weight | HeadWeight, tiling: Tiling, host: bool, product: Product) -> bool:
    """Whether a row has the same bits at every place of a tile, beside other rows, and in tiles of
    every size."""
    rows = 2 * tiling.sizes[-1] if host else tiling.sizes[-1]
    inner = weight.host.shape[:2] if isinstance(weight, HeadWeight) else (weight.depth,)
    noise = np.random.default_rng(rows)
    x = noise.standard_normal((rows, *inner), np.float32)
    want = product(x, weight, tiling, host)
    for size in tiling.sizes[:-1]:
        if not np.array_equal(product(x, weight, Tiling((size,)), host), want):
            return False
    order = noise.permutation(rows)
    if not np.array_equal(product(x[order], weight, tiling, host), want[order]):
        return False
    others = np.arange(rows) % 2 == 1
    x[others] *= np.float32(1e4)
    return np.array_equal(product(x, weight, tiling, host)[~others], want[~others])


def prompt_entries_hold(spec: ModelSpec) -> bool:
    """Whether each entry of torch's batched products has the bits that it has alone."""
    d, latent, heads = spec.kda_head_dim, spec.kv_lora_rank, spec.heads
    shapes = (
        (32, d, 16),
        (16, 16, 2 * d),
        (16, d, d),
        (d, 16, d),
        (heads, latent, 64),
        (heads, 64, latent),
        (1, spec.streams, spec.hidden_size),
        (spec.streams, spec.streams, spec.hidden_size),
        (1, spec.num_experts_per_tok, spec.hidden_size),
    )
    noise = torch.Generator().manual_seed(1)
    for m, k, n in shapes:
        a, b = torch.randn(5, m, k, generator=noise), torch.randn(5, k, n, generator=noise)
        want = bmm(a, b, Tiling((1,), entries=False))
        if not torch.equal(bmm(a, b, Tiling((1,))), want):
            return False
    return True


def window_entries_hold(spec: ModelSpec) -> bool:
    """Whether lanes side by side have the bits that each has alone."""
    noise = np.random.default_rng(2)
    return _steps_hold(spec, noise) and _lists_hold(spec, noise) and _mixing_holds(spec, noise)


def _steps_hold(spec: ModelSpec, noise: np.random.Generator) -> bool:
    heads, dim, lanes = spec.kda_heads, spec.kda_head_dim, 3
    numbers = kda.constants(heads, dim, spec.gate_lower_bound)
    qkv = noise.standard_normal((lanes, 3 * heads * dim), np.float32)
    decay = -noise.random((lanes, heads * dim), np.float32)
    beta = noise.random((lanes, heads), np.float32)
    state = noise.standard_normal((lanes, heads, dim, dim), np.float32)
    found = []
    for tiling in (Tiling((1,)), Tiling((1,), entries=False)):
        mine = state.copy()
        found.append((kda.step(qkv, decay, beta, mine, numbers, tiling), mine))
    return all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


def _lists_hold(spec: ModelSpec, noise: np.random.Generator) -> bool:
    lanes, length = 3, -(-(spec.dense_limit) // 16) * 16
    queries = noise.standard_normal((lanes, spec.heads, spec.kv_lora_rank), np.float32)
    shape = (1, length, spec.kv_lora_rank)
    latents = plain(torch.from_numpy(noise.standard_normal(shape, np.float32)))
    slots = np.stack([noise.permutation(length) for _ in range(lanes)])
    seen = noise.random((lanes, length)) < 0.9
    seen[:, 0] = True
    found: Sequence[Array] = [
        latent_attention.selected(queries, latents, slots, seen, spec.rows.attend, tiling)
        for tiling in (Tiling((1,)), Tiling((1,), entries=False))
    ]
    return np.array_equal(found[0], found[1])


def _mixing_holds(spec: ModelSpec, noise: np.random.Generator) -> bool:
    """Sinkhorn's half-steps on 1 and on 12 rows at a time."""
    from streamglm.kernels.hyper import prepare

    s = spec.streams
    outputs = spec.hc_outputs
    weights = prepare(
        torch.zeros(outputs, s),
        torch.zeros(outputs),
        torch.zeros(3),
        streams=s,
        count=s,
        norm_eps=spec.rms_norm_eps,
        eps=spec.hc_eps,
        iterations=spec.sinkhorn_iters,
    )
    mixed = np.zeros((12, weights.sums_in.shape[0]), np.float32)
    mixed[:, : s * s] = noise.random((12, s * s), np.float32)
    mixed[:, s * s] = 1.0
    alone = mixed.copy()
    half_steps(mixed, weights)
    for row in range(len(alone)):
        half_steps(alone[row : row + 1], weights)
    return np.array_equal(mixed, alone)
