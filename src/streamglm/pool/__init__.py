"""The paged pool: a book of page ids (no torch) and, in `tensors.py`, the memory behind it."""
