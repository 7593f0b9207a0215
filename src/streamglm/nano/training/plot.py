"""The loss plot: one SVG, drawn from the log's lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 760, 420, 60, 40, 24
_CURVES = (
    ("next", "next token", "#1f5fa8"),
    ("after_next", "MTP", "#c2571a"),
    ("index", "indexer (KL)", "#3b8a3b"),
)


def svg(log: Sequence[Mapping[str, Any]]) -> str:
    """Loss curves over steps on a logarithmic scale."""
    steps = [line["step"] for line in log]
    values = [line[key] for line in log for key, _, _ in _CURVES if line.get(key, 0) > 0]
    low = math.floor(math.log10(min(values, default=0.1)))
    high = math.ceil(math.log10(max(values, default=10.0)))
    last = max(steps, default=1)

    def x(step: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 16) * step / max(1, last)

    def y(value: float) -> float:
        part = (math.log10(value) - low) / max(1, high - low)
        return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * part

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}">',
        '<g font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - 16}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>'
        )
        parts.append(
            f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{10.0**power:g}</text>'
        )
    for part in range(5):
        step = last * part // 4
        parts.append(
            f'<text x="{x(step):.1f}" y="{_HEIGHT - 16}" text-anchor="middle">{step}</text>'
        )
    for number, (key, name, colour) in enumerate(_CURVES):
        points = " ".join(
            f"{x(line['step']):.1f},{y(line[key]):.1f}" for line in log if line.get(key, 0) > 0
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        )
        parts.append(
            f'<text x="{_WIDTH - 130}" y="{_TOP + 16 * number + 8}" fill="{colour}">{name}</text>'
        )
    parts.append(
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 2}" text-anchor="middle">step</text></g></svg>'
    )
    return "\n".join(parts)
