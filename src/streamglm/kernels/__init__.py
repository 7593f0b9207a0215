"""One directory an operator: contract, reference, kernel. Imports nothing of ours.

`OPS` lists the contracts of all operators; tests, benches and docs/kernels.md iterate it.
"""

from __future__ import annotations

from streamglm.kernels.contract import Contract
from streamglm.kernels.draw.contract import CONTRACTS as DRAW
from streamglm.kernels.experts.contract import CONTRACTS as EXPERTS
from streamglm.kernels.experts.device_contract import CONTRACTS as EXPERTS_OF_FORMATS
from streamglm.kernels.hyper.contract import CONTRACTS as HYPER
from streamglm.kernels.hyper.device_contract import CONTRACTS as HYPER_SITES
from streamglm.kernels.indexer.contract import CONTRACTS as INDEXER
from streamglm.kernels.kda.contract import CONTRACTS as KDA
from streamglm.kernels.latent_attention.contract import CONTRACTS as LATENT_ATTENTION
from streamglm.kernels.layer_norm.contract import CONTRACTS as LAYER_NORM
from streamglm.kernels.linear.contract import CONTRACTS as LINEAR
from streamglm.kernels.linear.device_contract import CONTRACTS as LINEAR_OF_FORMATS
from streamglm.kernels.linear.head_contract import CONTRACTS as LINEAR_BY_HEAD
from streamglm.kernels.mlp.contract import CONTRACTS as MLP
from streamglm.kernels.mlp.device_contract import CONTRACTS as MLP_OF_FORMATS
from streamglm.kernels.page_move.contract import CONTRACTS as PAGE_MOVE
from streamglm.kernels.page_write.contract import CONTRACTS as PAGE_WRITE
from streamglm.kernels.rms_norm.contract import CONTRACTS as RMS_NORM
from streamglm.kernels.short_conv.contract import CONTRACTS as SHORT_CONV

OPS: tuple[Contract, ...] = (
    *LINEAR,
    *LINEAR_OF_FORMATS,
    *LINEAR_BY_HEAD,
    *RMS_NORM,
    *LAYER_NORM,
    *HYPER,
    *HYPER_SITES,
    *SHORT_CONV,
    *KDA,
    *PAGE_WRITE,
    *PAGE_MOVE,
    *INDEXER,
    *LATENT_ATTENTION,
    *MLP,
    *MLP_OF_FORMATS,
    *EXPERTS,
    *EXPERTS_OF_FORMATS,
    *DRAW,
)
"""In the order in which a layer runs them, the draw last."""
