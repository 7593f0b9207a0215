"""Drafts: what may follow a reply, and how much of it is worth a window's rows.

Knows no torch, no pages, no rounds and no tokens' meaning. Nothing here can change a reply: a draft
decides which rows a window has, and `model/verify.py` which of them count.
"""
