# mypy: ignore-errors
# Triton's language is not Python's types.
"""Triton kernels that training needs and no library has.

Owns Sinkhorn with its gradient, latent attention on a selection with its gradient, and index
scores. Each has a plain-torch counterpart in `ops`, which the tests compare it with. Knows no
model.

Layouts: tokens of all conversations lie in one flat row, each conversation from a multiple of 16
on; `start[t]` is where the conversation of token t begins.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

ROWS = 128
"""Rows of a Sinkhorn program."""


@triton.jit
def _load16(pointer, row, mask):
    base = pointer + row * 16
    return (
        tl.load(base, mask, 1.0), tl.load(base + 1, mask, 1.0), tl.load(base + 2, mask, 1.0),
        tl.load(base + 3, mask, 1.0), tl.load(base + 4, mask, 1.0), tl.load(base + 5, mask, 1.0),
        tl.load(base + 6, mask, 1.0), tl.load(base + 7, mask, 1.0), tl.load(base + 8, mask, 1.0),
        tl.load(base + 9, mask, 1.0), tl.load(base + 10, mask, 1.0), tl.load(base + 11, mask, 1.0),
        tl.load(base + 12, mask, 1.0), tl.load(base + 13, mask, 1.0), tl.load(base + 14, mask, 1.0),
        tl.load(base + 15, mask, 1.0),
    )  # fmt: skip


@triton.jit
def _store16(pointer, row, mask, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p):  # noqa: E741
    base = pointer + row * 16
    tl.store(base, a, mask)
    tl.store(base + 1, b, mask)
    tl.store(base + 2, c, mask)
    tl.store(base + 3, d, mask)
    tl.store(base + 4, e, mask)
    tl.store(base + 5, f, mask)
    tl.store(base + 6, g, mask)
    tl.store(base + 7, h, mask)
    tl.store(base + 8, i, mask)
    tl.store(base + 9, j, mask)
    tl.store(base + 10, k, mask)
    tl.store(base + 11, l, mask)
    tl.store(base + 12, m, mask)
    tl.store(base + 13, n, mask)
    tl.store(base + 14, o, mask)
    tl.store(base + 15, p, mask)


@triton.jit
def _store4(pointer, row, mask, a, b, c, d):
    base = pointer + row * 4
    tl.store(base, a, mask)
    tl.store(base + 1, b, mask)
    tl.store(base + 2, c, mask)
    tl.store(base + 3, d, mask)


@triton.jit
def _load4(pointer, row, mask):
    base = pointer + row * 4
    return (
        tl.load(base, mask, 1.0), tl.load(base + 1, mask, 1.0),
        tl.load(base + 2, mask, 1.0), tl.load(base + 3, mask, 1.0),
    )  # fmt: skip


@triton.jit
def _softmax4(a, b, c, d, eps):
    top = tl.maximum(tl.maximum(a, b), tl.maximum(c, d))
    a = tl.exp(a - top)
    b = tl.exp(b - top)
    c = tl.exp(c - top)
    d = tl.exp(d - top)
    total = a + b + c + d
    return a / total + eps, b / total + eps, c / total + eps, d / total + eps


@triton.jit
def _sinkhorn_forward(
    x, y, kept, count, eps, iterations: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr
):
    """Entries are named by row and column: a b c d is the first row. `kept` holds the sums that
    were divided by, four a step, step by step."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = row < count
    a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p = _load16(x, row, mask)  # noqa: E741
    a, b, c, d = _softmax4(a, b, c, d, eps)
    e, f, g, h = _softmax4(e, f, g, h, eps)
    i, j, k, l = _softmax4(i, j, k, l, eps)  # noqa: E741
    m, n, o, p = _softmax4(m, n, o, p, eps)
    for step in range(2 * iterations - 1):
        if step % 2 == 0:
            s0 = a + e + i + m + eps
            s1 = b + f + j + n + eps
            s2 = c + g + k + o + eps
            s3 = d + h + l + p + eps
            a, e, i, m = a / s0, e / s0, i / s0, m / s0
            b, f, j, n = b / s1, f / s1, j / s1, n / s1
            c, g, k, o = c / s2, g / s2, k / s2, o / s2
            d, h, l, p = d / s3, h / s3, l / s3, p / s3  # noqa: E741
        else:
            s0 = a + b + c + d + eps
            s1 = e + f + g + h + eps
            s2 = i + j + k + l + eps
            s3 = m + n + o + p + eps
            a, b, c, d = a / s0, b / s0, c / s0, d / s0
            e, f, g, h = e / s1, f / s1, g / s1, h / s1
            i, j, k, l = i / s2, j / s2, k / s2, l / s2  # noqa: E741
            m, n, o, p = m / s3, n / s3, o / s3, p / s3
        if KEEP:
            _store4(kept + step * count * 4, row, mask, s0, s1, s2, s3)
    _store16(y, row, mask, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)


@triton.jit
def _sinkhorn_backward(
    x, y, dy, dx, kept, count, eps, iterations: tl.constexpr, BLOCK: tl.constexpr
):
    """Undoes the divisions one by one: for z = w / (sum w + eps), dw = (dz - sum dz z) / s."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = row < count
    a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p = _load16(y, row, mask)  # noqa: E741
    da, db, dc, dd, de, df, dg, dh, di, dj, dk, dl, dm, dn, do, dp = _load16(dy, row, mask)
    for back in range(2 * iterations - 1):
        step = 2 * iterations - 2 - back
        s0, s1, s2, s3 = _load4(kept + step * count * 4, row, mask)
        if step % 2 == 0:
            t0 = da * a + de * e + di * i + dm * m
            t1 = db * b + df * f + dj * j + dn * n
            t2 = dc * c + dg * g + dk * k + do * o
            t3 = dd * d + dh * h + dl * l + dp * p
            da, de, di, dm = (da - t0) / s0, (de - t0) / s0, (di - t0) / s0, (dm - t0) / s0
            db, df, dj, dn = (db - t1) / s1, (df - t1) / s1, (dj - t1) / s1, (dn - t1) / s1
            dc, dg, dk, do = (dc - t2) / s2, (dg - t2) / s2, (dk - t2) / s2, (do - t2) / s2
            dd, dh, dl, dp = (dd - t3) / s3, (dh - t3) / s3, (dl - t3) / s3, (dp - t3) / s3
            a, e, i, m = a * s0, e * s0, i * s0, m * s0
            b, f, j, n = b * s1, f * s1, j * s1, n * s1
            c, g, k, o = c * s2, g * s2, k * s2, o * s2
            d, h, l, p = d * s3, h * s3, l * s3, p * s3  # noqa: E741
        else:
            t0 = da * a + db * b + dc * c + dd * d
            t1 = de * e + df * f + dg * g + dh * h
            t2 = di * i + dj * j + dk * k + dl * l
            t3 = dm * m + dn * n + do * o + dp * p
            da, db, dc, dd = (da - t0) / s0, (db - t0) / s0, (dc - t0) / s0, (dd - t0) / s0
            de, df, dg, dh = (de - t1) / s1, (df - t1) / s1, (dg - t1) / s1, (dh - t1) / s1
            di, dj, dk, dl = (di - t2) / s2, (dj - t2) / s2, (dk - t2) / s2, (dl - t2) / s2
            dm, dn, do, dp = (dm - t3) / s3, (dn - t3) / s3, (do - t3) / s3, (dp - t3) / s3
            a, b, c, d = a * s0, b * s0, c * s0, d * s0
            e, f, g, h = e * s1, f * s1, g * s1, h * s1
            i, j, k, l = i * s2, j * s2, k * s2, l * s2  # noqa: E741
            m, n, o, p = m * s3, n * s3, o * s3, p * s3
    # what is left are the softmax's outputs with eps on top
    t0 = da * (a - eps) + db * (b - eps) + dc * (c - eps) + dd * (d - eps)
    t1 = de * (e - eps) + df * (f - eps) + dg * (g - eps) + dh * (h - eps)
    t2 = di * (i - eps) + dj * (j - eps) + dk * (k - eps) + dl * (l - eps)
    t3 = dm * (m - eps) + dn * (n - eps) + do * (o - eps) + dp * (p - eps)
    _store16(
        dx, row, mask,
        (da - t0) * (a - eps), (db - t0) * (b - eps), (dc - t0) * (c - eps), (dd - t0) * (d - eps),
        (de - t1) * (e - eps), (df - t1) * (f - eps), (dg - t1) * (g - eps), (dh - t1) * (h - eps),
        (di - t2) * (i - eps), (dj - t2) * (j - eps), (dk - t2) * (k - eps), (dl - t2) * (l - eps),
        (dm - t3) * (m - eps), (dn - t3) * (n - eps), (do - t3) * (o - eps), (dp - t3) * (p - eps),
    )  # fmt: skip


class _Sinkhorn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, eps, iterations):
        x = x.contiguous()
        count = x.shape[0]
        y = torch.empty_like(x)
        kept = x.new_empty(2 * iterations - 1, count, 4)
        grid = (triton.cdiv(count, ROWS),)
        _sinkhorn_forward[grid](x, y, kept, count, eps, iterations, True, ROWS, num_warps=4)
        ctx.save_for_backward(x, y, kept)
        ctx.eps, ctx.iterations = eps, iterations
        return y

    @staticmethod
    def backward(ctx, dy):
        x, y, kept = ctx.saved_tensors
        count = x.shape[0]
        dx = torch.empty_like(x)
        grid = (triton.cdiv(count, ROWS),)
        _sinkhorn_backward[grid](
            x, y, dy.contiguous(), dx, kept, count, ctx.eps, ctx.iterations, ROWS, num_warps=4
        )
        return dx, None, None


def sinkhorn(x: torch.Tensor, eps: float, iterations: int) -> torch.Tensor:
    """`ops.sinkhorn` for [tokens, 4, 4] float32."""
    return _Sinkhorn.apply(x, eps, iterations)


# ---- latent attention on a selection

KEYS = 64
"""Keys that a program takes at a time: sixteen pools of four."""
TILE = 16
"""Rows of the smallest matrix product, and of a conversation's alignment."""


@triton.jit
def _scores(query, keys, key, token, first, scale):
    s = tl.dot(query, tl.trans(keys)) * scale
    seen = (key >= first) & (key <= token)
    return tl.where(seen[None, :], s, float("-inf")), seen


@triton.jit
def _attend_forward(
    q, c, start, chosen, out, lse, scale, first_row,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, POOLS: tl.constexpr,
    TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One query. Keys: the unfinished pool's first, then the chosen pools, `BLOCK` // 4 a time."""
    token = tl.program_id(0)
    head = tl.arange(0, TILE)
    dim = tl.arange(0, WIDTH)
    has = head < HEADS
    query = tl.load(
        q + token * HEADS * WIDTH + head[:, None] * WIDTH + dim[None, :], has[:, None], 0.0
    )
    first = tl.load(start + token) + first_row
    tail = (token + 1) // 4 * 4
    last_key = tail + tl.arange(0, TILE)
    last = tl.load(c + last_key[:, None] * WIDTH + dim[None, :], (last_key <= token)[:, None], 0.0)
    last_s, _last = _scores(query, last, last_key, token, first, scale)
    top = tl.max(last_s, 1)
    last_p = tl.exp(last_s - tl.where(top == float("-inf"), 0.0, top)[:, None])
    total = tl.sum(last_p, 1)
    acc = tl.dot(last_p.to(last.dtype), last)
    slot = tl.arange(0, BLOCK)
    for block in range(POOLS * 4 // BLOCK):
        pool = tl.load(chosen + token * POOLS + block * (BLOCK // 4) + slot // 4)
        if tl.max(pool, 0) >= 0:
            key = tl.where(pool >= 0, pool * 4 + slot % 4, -1)
            keys = tl.load(c + key[:, None] * WIDTH + dim[None, :], (key >= 0)[:, None], 0.0)
            s, _ = _scores(query, keys, key, token, first, scale)
            new = tl.maximum(top, tl.max(s, 1))
            safe = tl.where(new == float("-inf"), 0.0, new)
            p = tl.exp(s - safe[:, None])
            shrink = tl.exp(top - safe)
            total = total * shrink + tl.sum(p, 1)
            acc = acc * shrink[:, None] + tl.dot(p.to(keys.dtype), keys)
            top = new
    total = tl.where(total == 0.0, 1.0, total)
    acc = acc / total[:, None]
    tl.store(
        out + token * HEADS * WIDTH + head[:, None] * WIDTH + dim[None, :],
        acc.to(out.dtype.element_ty),
        has[:, None],
    )
    safe = tl.where(top == float("-inf"), 0.0, top)
    tl.store(lse + token * HEADS + head, safe + tl.log(total), has)


@triton.jit
def _attend_block(
    query, grad, keys, key, token, first, level, delta, scale, dquery, dc, dim, WIDTH: tl.constexpr
):
    s, seen = _scores(query, keys, key, token, first, scale)
    p = tl.exp(s - level[:, None])
    dp = tl.dot(grad, tl.trans(keys))
    ds = (p * (dp - delta[:, None]) * scale).to(keys.dtype)
    dquery += tl.dot(ds, keys)
    dkeys = tl.dot(tl.trans(ds), query) + tl.dot(tl.trans(p.to(keys.dtype)), grad)
    tl.atomic_add(dc + key[:, None] * WIDTH + dim[None, :], dkeys, seen[:, None], sem="relaxed")
    return dquery


@triton.jit
def _attend_backward(
    q, c, start, chosen, out, lse, dout, dq, dc, scale, first_row,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, POOLS: tl.constexpr,
    TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0)
    head = tl.arange(0, TILE)
    dim = tl.arange(0, WIDTH)
    has = head < HEADS
    place = token * HEADS * WIDTH + head[:, None] * WIDTH + dim[None, :]
    query = tl.load(q + place, has[:, None], 0.0)
    grad = tl.load(dout + place, has[:, None], 0.0)
    made = tl.load(out + place, has[:, None], 0.0)
    delta = tl.sum(grad.to(tl.float32) * made.to(tl.float32), 1)
    level = tl.load(lse + token * HEADS + head, has, 0.0)
    first = tl.load(start + token) + first_row
    dquery = tl.zeros((TILE, WIDTH), tl.float32)
    tail = (token + 1) // 4 * 4
    last_key = tail + tl.arange(0, TILE)
    last = tl.load(c + last_key[:, None] * WIDTH + dim[None, :], (last_key <= token)[:, None], 0.0)
    dquery = _attend_block(
        query, grad, last, last_key, token, first, level, delta, scale, dquery, dc, dim, WIDTH
    )
    slot = tl.arange(0, BLOCK)
    for block in range(POOLS * 4 // BLOCK):
        pool = tl.load(chosen + token * POOLS + block * (BLOCK // 4) + slot // 4)
        if tl.max(pool, 0) >= 0:
            key = tl.where(pool >= 0, pool * 4 + slot % 4, -1)
            keys = tl.load(c + key[:, None] * WIDTH + dim[None, :], (key >= 0)[:, None], 0.0)
            dquery = _attend_block(
                query, grad, keys, key, token, first, level, delta, scale, dquery, dc, dim, WIDTH
            )
    tl.store(dq + place, dquery.to(dq.dtype.element_ty), has[:, None])


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, c, start, chosen, scale, first_row):
        q, c = q.contiguous(), c.contiguous()
        count, heads, width = q.shape
        out = torch.empty_like(q)
        lse = torch.empty(count, heads, device=q.device, dtype=torch.float32)
        pools = chosen.shape[1]
        _attend_forward[(count,)](
            q, c, start, chosen, out, lse, scale, first_row,
            heads, width, pools, TILE, KEYS, num_warps=4, num_stages=2,
        )  # fmt: skip
        ctx.save_for_backward(q, c, start, chosen, out, lse)
        ctx.scale, ctx.first_row = scale, first_row
        return out

    @staticmethod
    def backward(ctx, dout):
        q, c, start, chosen, out, lse = ctx.saved_tensors
        count, heads, width = q.shape
        dq = torch.empty_like(q)
        dc = torch.zeros(c.shape, device=c.device, dtype=torch.float32)
        _attend_backward[(count,)](
            q, c, start, chosen, out, lse, dout.contiguous(), dq, dc, ctx.scale, ctx.first_row,
            heads, width, chosen.shape[1], TILE, KEYS, num_warps=4, num_stages=2,
        )  # fmt: skip
        return dq, dc.to(c.dtype), None, None, None, None


def attend(q, c, start, chosen, scale, first_row):
    """`ops.attend`: bf16, a number of pools that is a multiple of 16."""
    return _Attend.apply(q, c, start, chosen, scale, first_row)


# ---- index scores


@triton.jit
def _index_scores(
    q, weights, pools, start, out, width, scale,
    HEADS: tl.constexpr, DIM: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sixteen queries of one conversation against `BLOCK` of its pools."""
    tile = tl.program_id(0)
    token = tile * TILE + tl.arange(0, TILE)
    first = tl.load(start + tile * TILE) // 4
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    place = out + token[:, None].to(tl.int64) * width + column[None, :]
    if first + tl.program_id(1) * BLOCK > (tile * TILE + TILE) // 4:
        tl.store(place, tl.full((TILE, BLOCK), float("-inf"), tl.float32))
    else:
        pool = first + column
        dim = tl.arange(0, DIM)
        seen = pool[None, :] * 4 + 3 <= token[:, None]
        inside = pool * 4 < tile * TILE + TILE
        keys = tl.load(pools + pool[:, None] * DIM + dim[None, :], inside[:, None], 0.0)
        acc = tl.zeros((TILE, BLOCK), tl.float32)
        for head in tl.static_range(HEADS):
            query = tl.load(q + token[:, None] * HEADS * DIM + head * DIM + dim[None, :])
            weight = tl.load(weights + token * HEADS + head)
            s = tl.dot(query, tl.trans(keys)) * scale
            acc += weight[:, None] * tl.maximum(s, 0.0)
        tl.store(place, tl.where(seen, acc, float("-inf")))


def index_scores(q, weights, pools, start, width, scale):
    """`ops.index_scores`: bf16 queries and pools, float32 weights; `width` a multiple of 64."""
    count, heads, dim = q.shape
    out = torch.empty(count, width, device=q.device, dtype=torch.float32)
    grid = (count // TILE, width // KEYS)
    _index_scores[grid](
        q.contiguous(), weights.contiguous(), pools.contiguous(), start, out, width, scale,
        heads, dim, TILE, KEYS, num_warps=4,
    )  # fmt: skip
    return out
