"""Gates and the one-row step for the few rows of a window: numpy, around torch's updates of the
states, which are large enough for it."""

from __future__ import annotations

import numpy as np
import torch

from streamglm.kernels import host
from streamglm.kernels.arguments import Array
from streamglm.kernels.kda.reference import KdaConstants

_ONE = np.float32(1.0)


def gate(x: Array, constants: KdaConstants) -> tuple[Array, Array, Array]:
    """x [R, 2 F + B] -> log-decay [R, F], output gate [R, F], beta [R, B]."""
    width = constants.padded
    sigmoid = host.sigmoid(x)
    decay = sigmoid[:, :width] * constants.host_bound
    return decay, sigmoid[:, width : 2 * width], sigmoid[:, 2 * width :]


def step(qkv: Array, decay: Array, beta: Array, state: Array, constants: KdaConstants) -> Array:
    """qkv [N, 3 H d], state [N, H, d, d] in place -> o [N, H, d]."""
    n, h, d = qkv.shape[0], constants.heads, constants.dim
    parts = qkv.reshape(n, 3 * h, d)
    qk = parts[:, : 2 * h]
    qk = qk * np.divide(constants.host_scale, host.rms(qk, constants.host_eps, _ONE))
    key = qk[:, h:].reshape(n * h, 1, d)
    matrices = state.reshape(n * h, d, d)
    flat = torch.from_numpy(matrices)
    flat.mul_(torch.from_numpy(np.exp(decay[:, : h * d]).reshape(n * h, d, 1)))
    delta = host.matmul(key, matrices)
    np.subtract(parts[:, 2 * h :].reshape(n * h, 1, d), delta, delta)
    np.multiply(delta, beta[:, :h].reshape(n * h, 1, 1), delta)
    flat.addcmul_(torch.from_numpy(key.reshape(n * h, d, 1)), torch.from_numpy(delta))
    return host.matmul(qk[:, :h].reshape(n * h, 1, d), matrices).reshape(n, h, d)
