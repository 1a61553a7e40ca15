// The cascade of kernels/program.py and its adjoint: one step from a row to the next, whose
// coefficients say how actions are held; the transpose reads the same ones. See level.hpp.

namespace LEVEL {

// The coefficients Job.carry, Job.now and Job.before, times their powers of dt.
struct Coefficients {
    Vec inverse, carry[2], now[3], before[3];

    // ``side`` steps: one for all lanes, or one for each trajectory side by side.
    template <int ORDER>
    void make(const Job& job, const double* steps, Int side, Int column) {
        const Vec dt = side == 1 ? all(*steps) : load(steps + column % side);
        if (ORDER < 3) inverse = 1.0 / dt;
        Vec power = dt;
        for (int n = 0; n < ORDER; n++, power *= dt) {
            if (n < 2) carry[n] = job.carry[n] * power;
            now[n] = job.now[n] * power;
            before[n] = job.before[n] * power;
        }
    }
};

// Computes a strip of rows. The state is four vectors, ``pitch`` apart: before the call those of
// the row before the first, after it those of the last row.
template <int ORDER, class Out>
void cascade_strip(const Job& job, Int rows, Rows<const double> dt, Int side,
                   Rows<const double> actions, double* state, Int pitch, const Rows<Out>* out,
                   Int column) {
    const bool before = job.before[0] != 0;
    Coefficients c = {};
    Vec x[4], y[4];
    for (int m = 0; m < 4; m++) x[m] = load(state + m * pitch + column);
    Out* to[4];
    for (int m = 0; m < 4; m++) to[m] = out[m].at + column;
    const Int next = out[0].pitch;
    if (!dt.pitch) c.make<ORDER>(job, dt.at, side, column);
    for (Int t = 0; t < rows; t++) {
        if (dt.pitch) c.make<ORDER>(job, dt.at + t * dt.pitch, side, column);
        const Vec u = load(actions.at + t * actions.pitch + column);
        for (int m = 0; m < ORDER; m++) {
            const int n = ORDER - m;
            Vec change = c.now[n - 1] * u;
            if (before) change += c.before[n - 1] * x[ORDER];
            for (int r = 1; r < n; r++) change += c.carry[r - 1] * x[m + r];
            y[m] = x[m] + change;
        }
        y[ORDER] = u;
        for (int m = ORDER + 1; m < 4; m++) y[m] = (y[m - 1] - x[m - 1]) * c.inverse;
        for (int m = 0; m < 4; m++) {
            store(to[m] + t * next, y[m]);
            x[m] = y[m];
        }
    }
    for (int m = 0; m < 4; m++) store(state + m * pitch + column, x[m]);
}

// The transpose of cascade_strip, last row first. The state holds the gradient of a row's values by
// all later rows: before the call for the last row, after it for the row before the first.
template <int ORDER, class Out>
void cascade_adjoint_strip(const Job& job, Int rows, Rows<const double> dt, Int side,
                           const Rows<const double>* upstream, double* state, Int pitch,
                           Rows<Out> actions, Int column) {
    const bool before = job.before[0] != 0;
    const Int beyond = std::max(W - actions.pitch, Int(0));  // lanes that lie in the next row
    Coefficients c = {};
    Vec z[4], total[4], later = {};
    for (int m = 0; m < 4; m++) z[m] = load(state + m * pitch + column);
    const Rows<const double> from[4] = {upstream[0], upstream[1], upstream[2], upstream[3]};
    for (Int t = rows - 1; t >= 0; t--) {
        if (t == rows - 1 || dt.pitch) c.make<ORDER>(job, dt.at + t * dt.pitch, side, column);
        for (int m = 0; m < 4; m++)
            total[m] = z[m] + load(from[m].at + t * from[m].pitch + column);
        z[3] = Vec{};
        for (int m = 3; m > ORDER; m--) {
            const Vec slope = total[m] * c.inverse;
            total[m - 1] += slope;
            z[m - 1] = -slope;
        }
        Vec u = total[ORDER];
        for (int m = 0; m < ORDER; m++) {
            const int n = ORDER - m;
            u += c.now[n - 1] * total[m];
            if (before) z[ORDER] += c.before[n - 1] * total[m];
            z[m] = total[m];
            for (int r = 1; r <= m; r++) z[m] += c.carry[r - 1] * total[m - r];
        }
        Out* const to = actions.at + t * actions.pitch + column;
        store(to, u);
        // the last vector reaches into the next row, which is finished: its first values are restored
        for (Int i = 0; t + 1 < rows && i < beyond; i++) to[actions.pitch + i] = Out(later[i]);
        later = u;
    }
    for (int m = 0; m < 4; m++) store(state + m * pitch + column, z[m]);
}

// The first rows of a recording have no rows before them to difference: order m copies row m.
// ``rows`` begin at the second row.
template <class Out>
void fill_first_rows(const Job& job, const Tile& tile, const Rows<Out>* rows) {
    for (Int m = 1; m < 4; m++)
        for (Int t = 0; t < m && t < job.rows; t++) {
            Out *first = rows[m].at - rows[m].pitch, *to = first + t * rows[m].pitch;
            if (m < job.rows)
                std::copy_n(first + m * rows[m].pitch, tile.lanes, to);
            else
                std::fill_n(to, tile.lanes, Out(0));
        }
}

// The transpose of fill_first_rows for the gradients of order m.
inline Rows<double> pull_first_rows(const Job& job, const Tile& tile, int m, Rows<double> rows) {
    for (Int t = 0; t < m && t < job.rows; t++)
        for (Int i = 0; i < tile.lanes; i++) {
            double& gradient = rows.at[t * rows.pitch + i];
            if (m < job.rows) rows.at[m * rows.pitch + i] += gradient;
            gradient = 0;
        }
    return rows;
}

template <class Out>
void cascade(Run& run, Int begin, Int end) {
    constexpr decltype(&cascade_strip<0, Out>) strips[] = {
        cascade_strip<0, Out>, cascade_strip<1, Out>, cascade_strip<2, Out>,
        cascade_strip<3, Out>};
    const Job& job = run.job;
    const Tiling tiling(job);
    const Int pitch = whole(tiling.lanes);
    Lanes steps(run, of_steps(job, tiling), job.dt, tiling.rows);
    Parts start(run, tiling, job.start, 1, job.start_index);
    Lanes actions(run, tiling, job.actions, tiling.rows);
    Buffer<double> state(4 * pitch);
    Writer<Out> writer(run, tiling, 4);
    writer.write_items(begin, end, [&](const Tile& tile, Rows<Out>* out) {
        // row 0 is the start state; in a recording, the first action
        const Int lead = job.start_row || job.recorded, starts = lead && tile.row == 0;
        const Int row = tile.row + starts - lead, rows = tile.rows - starts;
        if (tile.row == 0) start.read(tile, state.at, pitch);
        if (tile.row == 0 && job.recorded) actions.copy(tile, 0, 1, state.at, !job.allow_nonfinite);
        if (starts) write_start(tile, state.at, pitch, out);
        const Tile step = of_steps(job, tile);
        const Rows<const double> dt = steps.rows(step, row, rows);
        const Rows<const double> u = actions.rows(tile, row + job.recorded, rows);
        for_strips(tile.lanes, [&](Int column) {
            strips[job.order](job, rows, dt, step.side, u, state.at, pitch, out, column);
        });
        if (starts && job.recorded) fill_first_rows(job, tile, out);
    });
}

// Tiles are rows of actions; the gradients of unused actions are zero.
template <class Out>
void cascade_adjoint(Run& run, Int begin, Int end) {
    constexpr decltype(&cascade_adjoint_strip<0, Out>) strips[] = {
        cascade_adjoint_strip<0, Out>, cascade_adjoint_strip<1, Out>,
        cascade_adjoint_strip<2, Out>, cascade_adjoint_strip<3, Out>};
    const Job& job = run.job;
    const Tiling tiling(job);
    const Int pitch = whole(tiling.lanes);
    Lanes steps(run, of_steps(job, tiling), job.dt, tiling.rows);
    Parts readers(run, tiling, job.upstream, tiling.rows + 1);
    // a copy of upstream that pull_first_rows may change: a reader may share one row for all rows
    const Int room = (tiling.rows + 1) * tiling.lanes;
    Buffer<double> changed(job.recorded ? 4 * room : 0);
    Buffer<double> state(4 * pitch), zeros(pitch);
    Writer<Out> writer(run, tiling, 1, true);
    writer.write_items(begin, end, [&](const Tile& tile, Rows<Out>* out) {
        // the first action of a recording is its start state
        const bool first = tile.row == 0, start = first && job.recorded;
        const Int lead = first && (job.recorded || job.start_row), row = tile.row + start;
        const Int rows = std::max(std::min(tile.row + tile.rows, job.used) - row, Int(0));
        if (tile.row + tile.rows >= job.horizon)
            std::memset(state.at, 0, bytes<double>(4 * pitch));
        Rows<const double> upstream[4];
        for (int m = 0; m < 4; m++) {
            const Int from = row + job.start_row - lead;
            if (start && job.upstream[m].data) {
                const Rows<double> own = {changed.at + m * room, tile.lanes};
                readers.part[m].copy(tile, from, rows + lead, own.at, false);
                upstream[m] = pull_first_rows(job, tile, m, own);
            } else {
                upstream[m] = readers.part[m].rows(tile, from, rows + lead);
            }
            upstream[m].at += lead * upstream[m].pitch;
        }
        Out* const actions = out->at + start * out->pitch;
        const Tile step = of_steps(job, tile);
        const Rows<const double> dt = steps.rows(step, row - job.recorded, rows);
        for_strips(tile.lanes, [&](Int column) {
            strips[job.order](job, rows, dt, step.side, upstream, state.at, pitch,
                              {actions, out->pitch}, column);
        });
        for (Int t = start + rows; t < tile.rows; t++)
            std::fill_n(out->at + t * out->pitch, tile.lanes, Out(0));
        for (int m = 0; first && m < 4; m++) {
            double* part = state.at + m * pitch;
            for (Int i = 0; lead && i < tile.lanes; i++)
                part[i] += upstream[m].at[i - upstream[m].pitch];
            write_state(job, job.start_gradient[m], tile, job.recorded ? zeros.at : part);
            write_state(job, job.goal_gradient[m], tile, zeros.at);
        }
        if (start) std::copy_n(state.at, tile.lanes, out->at);
    });
}

}  // namespace LEVEL
