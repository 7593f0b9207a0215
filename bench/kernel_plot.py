"""Kernels by their share of the floor: one SVG, drawn from the table's lines."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_LABELS, _BARS, _ROW, _TOP = 320, 400, 18, 48


def svg(shares: Sequence[tuple[str, float]], device: str) -> str:
    """A bar a line; the right edge is the floor, and what goes past it is cut there."""
    width, height = _LABELS + _BARS + 70, _TOP + _ROW * len(shares) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">',
        '<g font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="8" y="16">{escape(device)}</text>',
        '<text x="8" y="34" fill="#666">share of the floor from bytes and operations</text>',
    ]
    for quarter in range(5):
        x = _LABELS + _BARS * quarter / 4
        parts += [
            f'<line x1="{x:g}" x2="{x:g}" y1="{_TOP - 6}" y2="{height - 8}" stroke="#ddd"/>',
            f'<text x="{x:g}" y="{_TOP - 10}" text-anchor="middle">{quarter / 4:g}</text>',
        ]
    for row, (name, share) in enumerate(shares):
        y = _TOP + _ROW * row
        length = _BARS * min(max(share, 0.0), 1.0)
        parts += [
            f'<text x="{_LABELS - 8}" y="{y + 12}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{_LABELS}" y="{y + 2}" width="{length:.1f}" height="13" fill="#1f5fa8"/>',
            f'<text x="{_LABELS + length + 4:.1f}" y="{y + 12}">{share:.2f}</text>',
        ]
    return "\n".join([*parts, "</g></svg>\n"])
