"""The forward pass on kernels: the layers of `model` over a GPU's tensors, prompts and windows.

Knows no steps and decides nothing that the CPU's path decides: where rows lie, what is a chunk, a
page, a tail and a verify window, `model/batch.py` and `model/tables.py` say for both.
"""
