"""Gradients of a band's table in Triton: sums over the rows of a kind, or over those of one row.

That of weight i of order m is the sum, over rows and dofs, of the gradient of output m times
point i of the row's window, less its middle point for m > 0. A program is one warp, that keeps
these 4 · WIDTH sums in every lane and adds the lanes up at its end. It writes what it found to a
place of its own; where several find parts of a sum, ``totals`` adds them in their order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from trajcli.kernels.triton_ops.arithmetic import tile_of, widened
from trajcli.kernels.triton_ops.points import point, scaled_ends
from trajcli.kernels.triton_ops.windows import kind_of, window


@triton.constexpr_function
def padded(width: int) -> int:
    """The least power of two that is at least ``width``."""
    return 1 << (width - 1).bit_length()


@triton.jit
def nothing(WIDTH: tl.constexpr, N: tl.constexpr, F: tl.constexpr):
    """The sums to begin with: WIDTH of each order, in a flat tuple."""
    sums = ()
    for _ in tl.static_range(4 * WIDTH):
        sums = sums + (tl.zeros([N, F], tl.float64),)
    return sums


@triton.jit
def with_rows(
    sums,
    upstream,
    upstream_stride,
    t,
    first,
    d,
    trajectory,
    mask,
    actions,
    actions_stride,
    horizon,
    batch,
    state,
    state_strides,
    state_rows,
    states,
    goal,
    goal_strides,
    goal_rows,
    goals,
    state_spacing,
    state_spacing_stride,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
    HEAD_POINTS: tl.constexpr,
    TAIL_POINTS: tl.constexpr,
    HALO: tl.constexpr,
    WIDTH: tl.constexpr,
    D: tl.constexpr,
):
    """The sums with those of rows t, whose windows begin at ``first``."""
    early = ()
    late = ()
    if HALO:
        early, late = scaled_ends(
            state,
            state_strides,
            state_rows,
            states,
            goal,
            goal_strides,
            goal_rows,
            goals,
            state_spacing,
            state_spacing_stride,
            trajectory,
            d,
            mask,
            batch,
            HEAD,
            TAIL,
            HEAD_POINTS,
            TAIL_POINTS,
        )
    points = ()
    for i in tl.static_range(WIDTH):
        value, _ = point(
            first + i,
            d,
            trajectory,
            mask,
            actions,
            actions_stride,
            horizon,
            state,
            early,
            goal,
            late,
            HEAD,
            TAIL,
            HEAD_POINTS,
            TAIL_POINTS,
            HALO,
            D,
        )
        points = points + (value,)
    at = trajectory * upstream_stride + t * D + d
    found = ()
    for m in tl.static_range(4):
        if upstream[m] is None:
            for i in tl.static_range(WIDTH):
                found = found + (sums[m * WIDTH + i],)
        else:
            asked = widened(tl.load(upstream[m] + at, mask=mask, other=0.0))
            for i in tl.static_range(WIDTH):
                if m == 0:
                    found = found + (tl.fma(asked, points[i], sums[i]),)
                elif i == WIDTH // 2:
                    found = found + (sums[m * WIDTH + i],)
                else:
                    apart = points[i] - points[WIDTH // 2]
                    found = found + (tl.fma(asked, apart, sums[m * WIDTH + i]),)
    return found


@triton.jit
def store_sums(
    to, row, mask, sums, upstream, WIDTH: tl.constexpr, TOGETHER: tl.constexpr, N: tl.constexpr
):
    """Lanes added up to ``to`` [.., 4, WIDTH], those of each row of them, or all TOGETHER."""
    columns = ()
    for m in tl.static_range(4):
        for i in tl.static_range(padded(WIDTH)):
            if i < WIDTH and upstream[m] is not None and (m == 0 or i != WIDTH // 2):
                total = tl.sum(sums[m * WIDTH + i], 1, keep_dims=True)
                if TOGETHER:
                    total = tl.sum(total, 0, keep_dims=True)
                columns = columns + (total,)
            else:
                columns = columns + (tl.zeros([1 if TOGETHER else N, 1], tl.float64),)
    place = tl.arange(0, 4 * padded(WIDTH))[None, :]
    i = place % padded(WIDTH)
    at = row * (4 * WIDTH) + place // padded(WIDTH) * WIDTH + i
    tl.store(to + at, tile_of(columns, 4 * padded(WIDTH)), mask=mask & (i < WIDTH))


@triton.jit(
    do_not_specialize=[
        *("batch", "horizon", "begin", "end", "first", "windows", "others", "last"),
        *("states", "goals"),
        *("pieces", "kinds", "each"),
    ]
)
def table_adjoint(
    upstream,
    upstream_stride,
    actions,
    actions_stride,
    state,
    state_strides,
    state_rows,
    states,
    goal,
    goal_strides,
    goal_rows,
    goals,
    state_spacing,
    state_spacing_stride,
    parts,
    batch,
    horizon,
    begin,
    end,
    first,
    windows,
    others,
    last,
    pieces,
    kinds,
    each,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
    HEAD_POINTS: tl.constexpr,
    TAIL_POINTS: tl.constexpr,
    OFFSET: tl.constexpr,
    STEPS: tl.constexpr,
    SHIFT: tl.constexpr,
    SHARED: tl.constexpr,
    WIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    D: tl.constexpr,
    N: tl.constexpr,
    F: tl.constexpr,
    TILES: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """Sums over the rows of a kind, into ``parts`` [B, pieces, kinds, 4, WIDTH].

    Rows ``begin``..``end`` have ``windows`` of actions only, from point ``first`` on, each with
    STEPS kinds of rows. Those of a kind are cut into ``pieces`` of TILES times F flat (row, dof)
    places. The first piece takes those among the ``others``, too. A program has N trajectories; if
    the table is SHARED, ``each`` times as many, which it adds up, and there is a part of each
    program instead of each trajectory.
    """
    tl.static_assert(TILES % AT_ONCE == 0, "else a piece would reach into the next")
    number = tl.program_id(0)
    kind = number % kinds  # side by side: they read the same lines
    piece = number // kinds % pieces
    group = (number // kinds // pieces).to(tl.int64)
    windows = tl.where((kind >= SHIFT) & (kind < SHIFT + STEPS), windows, 0)
    others = tl.where(piece == 0, others, 0)
    if WIDE:
        windows = windows.to(tl.int64)
        others = others.to(tl.int64)
        piece = piece.to(tl.int64)
    skipped = piece * (TILES * F)
    inner_places = windows * D
    outer_places = others * D
    tiles = tl.minimum(tl.cdiv(tl.maximum(inner_places - skipped, 0), F), TILES).to(tl.int32)
    outer_tiles = tl.cdiv(outer_places, F).to(tl.int32)
    sums = nothing(WIDTH, N, F)
    for j in range(each):
        trajectory = (group * each + j) * N + tl.arange(0, N)[:, None]
        alive = trajectory < batch
        for k in range(0, tiles, AT_ONCE):
            for more in tl.static_range(AT_ONCE):
                flat = skipped + (k + more) * F + tl.arange(0, F)[None, :]
                mask = alive & (flat < inner_places)
                if STEPS == 1:  # rows lie side by side: one long row
                    begins = first
                    t = begin
                    d = flat
                else:
                    begins = first + flat // D
                    t = STEPS * begins + kind - OFFSET
                    d = flat % D
                    mask = mask & (t >= begin) & (t < end)
                sums = with_rows(
                    sums,
                    upstream,
                    upstream_stride,
                    t,
                    begins,
                    d,
                    trajectory,
                    mask,
                    actions,
                    actions_stride,
                    horizon,
                    batch,
                    state,
                    state_strides,
                    state_rows,
                    states,
                    goal,
                    goal_strides,
                    goal_rows,
                    goals,
                    state_spacing,
                    state_spacing_stride,
                    HEAD,
                    TAIL,
                    HEAD_POINTS,
                    TAIL_POINTS,
                    False,
                    WIDTH,
                    D,
                )
        for k in range(outer_tiles):
            flat = k * F + tl.arange(0, F)[None, :]
            if WIDE:
                flat = flat.to(tl.int64)
            t = flat // D
            t = t + tl.where(t >= begin, end - begin, 0)
            begins = window(t, last, OFFSET, STEPS, SHIFT)
            own = kind_of(t, begins, OFFSET, STEPS, False) == kind
            sums = with_rows(
                sums,
                upstream,
                upstream_stride,
                t,
                begins,
                flat % D,
                trajectory,
                alive & (flat < outer_places) & own,
                actions,
                actions_stride,
                horizon,
                batch,
                state,
                state_strides,
                state_rows,
                states,
                goal,
                goal_strides,
                goal_rows,
                goals,
                state_spacing,
                state_spacing_stride,
                HEAD,
                TAIL,
                HEAD_POINTS,
                TAIL_POINTS,
                True,
                WIDTH,
                D,
            )
    if SHARED:
        part = group + tl.zeros([1, 1], tl.int64)
        mask = part >= 0
    else:
        part = group * N + tl.arange(0, N)[:, None]
        mask = part < batch
    row = (part * pieces + piece) * kinds + kind
    store_sums(parts, row, mask, sums, upstream, WIDTH, SHARED, N)


@triton.jit(
    do_not_specialize=[
        *("batch", "horizon", "row_0", "rows", "jump_at", "jump", "last", "count"),
        *("states", "goals"),
        *("runs", "each"),
    ]
)
def table_adjoint_each(
    upstream,
    upstream_stride,
    actions,
    actions_stride,
    state,
    state_strides,
    state_rows,
    states,
    goal,
    goal_strides,
    goal_rows,
    goals,
    state_spacing,
    state_spacing_stride,
    parts,
    batch,
    horizon,
    row_0,
    rows,
    jump_at,
    jump,
    last,
    count,
    runs,
    each,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
    HEAD_POINTS: tl.constexpr,
    TAIL_POINTS: tl.constexpr,
    OFFSET: tl.constexpr,
    STEPS: tl.constexpr,
    SHIFT: tl.constexpr,
    INNER: tl.constexpr,
    WIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    D: tl.constexpr,
    N: tl.constexpr,
    F: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """Sums over the dofs of rows that have a table of their own, into ``parts``
    [.., count, 4, WIDTH]: over ``each`` trajectories in a part.

    ``rows`` rows from row_0 on; from number ``jump_at`` on, ``jump`` rows further. N of them are
    the rows of a tile, which goes along F dofs at a time. INNER: windows hold actions only, and
    none is held at an end.
    """
    tile = tl.program_id(0)
    run = tile % runs
    part = (tile // runs).to(tl.int64)
    if WIDE or not INNER:
        run = run.to(tl.int64)
    number = run * N + tl.arange(0, N)[:, None]
    there = number < rows
    t = row_0 + number + tl.where(number >= jump_at, jump, 0)
    if INNER:
        first = (t + OFFSET) // STEPS - SHIFT
    else:
        first = window(t, last, OFFSET, STEPS, SHIFT)
    sums = nothing(WIDTH, N, F)
    for j in range(each):
        trajectory = part * each + j + tl.zeros([1, 1], tl.int64)
        for d_0 in range(0, D, F * AT_ONCE):
            for more in tl.static_range(AT_ONCE):
                d = d_0 + more * F + tl.arange(0, F)[None, :]
                sums = with_rows(
                    sums,
                    upstream,
                    upstream_stride,
                    t,
                    first,
                    d,
                    trajectory,
                    there & (d < D) & (trajectory < batch),
                    actions,
                    actions_stride,
                    horizon,
                    batch,
                    state,
                    state_strides,
                    state_rows,
                    states,
                    goal,
                    goal_strides,
                    goal_rows,
                    goals,
                    state_spacing,
                    state_spacing_stride,
                    HEAD,
                    TAIL,
                    HEAD_POINTS,
                    TAIL_POINTS,
                    not INNER,
                    WIDTH,
                    D,
                )
    store_sums(parts, part * count + t, there, sums, upstream, WIDTH, False, N)


@triton.jit(do_not_specialize=["count", "blocks", "values", "columns"])
def totals(
    parts,
    sums,
    count,
    blocks,
    values,
    columns,
    ROWS: tl.constexpr,
    K: tl.constexpr,
    F: tl.constexpr,
):
    """Sums of ROWS parts at a time, in their order: [S, count, values] to [S, blocks, values]."""
    tile = tl.program_id(0)
    value = tile % columns * F + tl.arange(0, F)[None, :]
    block = tile // columns % blocks
    which = (tile // columns // blocks).to(tl.int64)
    total = tl.zeros([K, F], tl.float64)
    for k in tl.static_range(0, ROWS, K):
        row = block * ROWS + k + tl.arange(0, K)[:, None]
        mask = (row < count) & (value < values)
        total += tl.load(parts + (which * count + row) * values + value, mask=mask, other=0.0)
    to = sums + (which * blocks + block) * values + value
    tl.store(to, tl.sum(total, 0, keep_dims=True), mask=value < values)
