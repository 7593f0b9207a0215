"""Whether ranks compute the same bits from the same numbers, before they serve.

Owns one comparison at the start. What every rank computes for itself (streams, norms, latents,
index keys and queries) is never exchanged, and joined logits are equal on all ranks whatever went
into them: ranks of unlike machines would drift apart unseen, and their caches with them. Knows no
steps.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch

from streamglm.errors import StartError
from streamglm.model.glm import Glm
from streamglm.model.peers import Peers
from streamglm.model.selfcheck import Proof

_TOKENS = 64
"""Rows that are computed, their ids ascending."""


def check(glm: Glm, proof: Proof, peers: Peers) -> None:
    """Raises `StartError` naming a rank that differs from rank 0. All ranks call it together."""
    if peers.world == 1:
        return
    mine = np.frombuffer(fingerprint(glm, proof), np.uint8).astype(np.float32)
    joined = peers.join(mine[None], [len(mine)] * peers.world)
    first, *others = joined.reshape(peers.world, -1)
    for rank, other in enumerate(others, 1):
        if not np.array_equal(other, first):
            raise StartError(
                f"rank {rank} computes other bits than rank 0 from the same numbers: start all "
                "ranks on one kind of processor, with one version of torch and the same --threads"
            )


@torch.inference_mode()
def fingerprint(glm: Glm, proof: Proof) -> bytes:
    """A hash of what all ranks must have alike of a few tokens, in prompts and in windows."""
    found = hashlib.sha256()
    ids = torch.arange(_TOKENS) % glm.tokens
    for part in glm.alike(glm.embed(ids), proof.prompt):
        found.update(part.contiguous().numpy().tobytes())
    for rows in glm.alike(glm.embed_host(ids.numpy()), proof.window):
        found.update(rows.tobytes())
    return found.digest()
