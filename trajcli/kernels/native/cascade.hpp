// The cascade and its adjoint: see Cascade in kernels/program.py. Every scheme is one companion
// step, whose transpose reads the same coefficients. Included by level.hpp after tile.hpp.

namespace LEVEL {

// Those of Job.carry, Job.now and Job.before times their powers of dt.
struct Coefficients {
    Vec inverse, carry[2], now[3], before[3];

    template <int ORDER>
    void make(const Job& job, Vec dt) {
        if (ORDER < 3) inverse = 1.0 / dt;
        Vec power = dt;
        for (int n = 0; n < ORDER; n++, power *= dt) {
            if (n < 2) carry[n] = job.carry[n] * power;
            now[n] = job.now[n] * power;
            before[n] = job.before[n] * power;
        }
    }
};

// A strip of rows; state: four vectors, ``pitch`` apart, of the row before, then of the last.
template <int ORDER, class Out, class In>
void cascade_strip(const Job& job, Int rows, Rows<const double> dt, Rows<const In> actions,
                   double* state, Int pitch, const Rows<Out>* out, Int column) {
    const bool before = job.before[0] != 0;
    Coefficients c = {};
    Vec x[4], y[4];
    for (int m = 0; m < 4; m++) x[m] = load(state + m * pitch + column);
    Out* to[4];
    for (int m = 0; m < 4; m++) to[m] = out[m].at + column;
    const Int next = out[0].pitch;
    for (Int t = 0; t < rows; t++) {
        if (t == 0 || dt.pitch) c.make<ORDER>(job, load(dt.at + t * dt.pitch + column));
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

// Its transpose, last row first. The state is the gradient of the state that a row leaves behind:
// what all later rows give it; then that of the state before the first of these rows.
template <int ORDER, class Out, class In>
void cascade_adjoint_strip(const Job& job, Int rows, Rows<const double> dt,
                           const Rows<const In>* upstream, double* state, Int pitch,
                           Rows<Out> actions, Int column) {
    const bool before = job.before[0] != 0;
    Coefficients c = {};
    Vec z[4], total[4];
    for (int m = 0; m < 4; m++) z[m] = load(state + m * pitch + column);
    const Rows<const In> from[4] = {upstream[0], upstream[1], upstream[2], upstream[3]};
    for (Int t = rows - 1; t >= 0; t--) {
        if (t == rows - 1 || dt.pitch) c.make<ORDER>(job, load(dt.at + t * dt.pitch + column));
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
        store(actions.at + t * actions.pitch + column, u);
    }
    for (int m = 0; m < 4; m++) store(state + m * pitch + column, z[m]);
}

// The first rows of a recording have no rows to be differenced from: order m takes row m.
// rows: those from the second on.
template <class Out>
void fill_first_rows(const Job& job, const Rows<Out>* rows, Int lanes) {
    for (Int m = 1; m < 4; m++)
        for (Int t = 0; t < m && t < job.rows; t++)
            for (Int i = 0; i < lanes; i++) {
                Out* at = rows[m].at - rows[m].pitch + i;
                at[t * rows[m].pitch] = m < job.rows ? at[m * rows[m].pitch] : Out(0);
            }
}

// Its transpose.
template <class In>
void pull_first_rows(const Job& job, int m, Rows<In> rows, Int lanes) {
    for (Int t = 0; t < m && t < job.rows; t++)
        for (Int i = 0; i < lanes; i++) {
            if (m < job.rows) rows.at[m * rows.pitch + i] += rows.at[t * rows.pitch + i];
            rows.at[t * rows.pitch + i] = 0;
        }
}

template <class Out, class In>
class Cascade {
public:
    static constexpr bool BACKWARDS = false;

    Cascade(Run& run, const Tiling& tiling)
        : writer(run, tiling, 4, BACKWARDS),
          run_(run),
          job_(run.job),
          steps_(run, tiling, tiling.rows),
          start_(run, tiling, job_.start, job_.start_index),
          actions_(run, tiling, job_.actions, tiling.rows),
          state_(4 * start_.pitch) {}

    void operator()(const Tile& tile) {
        // row 0 is the start state, or that of a recording its first action
        const Int lead = job_.start_row || job_.recorded, starts = lead && tile.row == 0;
        const Int row = tile.row + starts - lead, rows = tile.rows - starts;
        if (tile.row == 0) {
            std::memcpy(state_.at, start_.at(tile), 4 * start_.pitch * sizeof(double));
            if (job_.recorded) read(run_, job_.actions, tile, 0, 1, state_.at);
        }
        steps_.read_rows(tile, row, rows);
        const Rows<const In> actions = actions_.rows(tile, row + job_.recorded, rows);
        Rows<Out> out[4];
        writer.place(tile, out, starts ? state_.at : nullptr, start_.pitch);
        for_strips(tile.lanes, [&](Int column) {
            STRIPS[job_.order](job_, rows, steps_.rows(tile), actions, state_.at, start_.pitch,
                               out, column);
        });
        if (job_.recorded && starts) fill_first_rows(job_, out, tile.lanes);
        writer.write(tile);
    }

    Writer<Out> writer;

private:
    static constexpr decltype(&cascade_strip<0, Out, In>) STRIPS[] = {
        cascade_strip<0, Out, In>, cascade_strip<1, Out, In>, cascade_strip<2, Out, In>,
        cascade_strip<3, Out, In>};

    Run& run_;
    const Job& job_;
    Steps steps_;
    States start_;
    Reader<In> actions_;
    Buffer<double> state_;
};

// Tiles are of rows of actions; those that are not used are zero.
template <class Out, class In>
class CascadeAdjoint {
public:
    static constexpr bool BACKWARDS = true;

    CascadeAdjoint(Run& run, const Tiling& tiling)
        : writer(run, tiling, 1, BACKWARDS),
          job_(run.job),
          pitch_(whole(tiling.lanes)),
          steps_(run, tiling, tiling.rows),
          upstream_{{run, tiling, job_.upstream[0], tiling.rows + 1},
                    {run, tiling, job_.upstream[1], tiling.rows + 1},
                    {run, tiling, job_.upstream[2], tiling.rows + 1},
                    {run, tiling, job_.upstream[3], tiling.rows + 1}},
          state_(4 * pitch_),
          zeros_(pitch_) {}

    void operator()(const Tile& tile) {
        // the first action of a recording is its start state
        const Int first = job_.recorded && tile.row == 0;
        const Int lead = tile.row == 0 && (job_.recorded || job_.start_row);
        const Int row = tile.row + first;
        const Int rows = std::max(std::min(tile.row + tile.rows, job_.used) - row, Int(0));
        if (tile.row + tile.rows >= job_.horizon)
            std::memset(state_.at, 0, 4 * pitch_ * sizeof(double));
        Rows<const In> upstream[4];
        for (int m = 0; m < 4; m++) {
            upstream[m] = read_upstream(m, tile, row + job_.start_row - lead, rows + lead, first);
            upstream[m].at += lead * upstream[m].pitch;
        }
        Rows<Out> actions;
        writer.place(tile, &actions);
        auto action = [&](Int t) { return actions.at + t * actions.pitch; };
        steps_.read_rows(tile, row - job_.recorded, rows);
        for_strips(tile.lanes, [&](Int column) {
            STRIPS[job_.order](job_, rows, steps_.rows(tile), upstream, state_.at, pitch_,
                               {action(first), actions.pitch}, column);
        });
        for (Int t = first + rows; t < tile.rows; t++)
            std::memset(static_cast<void*>(action(t)), 0, tile.lanes * sizeof(Out));
        if (tile.row == 0) finish(tile, lead, upstream, actions.at);
        writer.write(tile);
    }

    Writer<Out> writer;

private:
    static constexpr decltype(&cascade_adjoint_strip<0, Out, In>) STRIPS[] = {
        cascade_adjoint_strip<0, Out, In>, cascade_adjoint_strip<1, Out, In>,
        cascade_adjoint_strip<2, Out, In>, cascade_adjoint_strip<3, Out, In>};

    Rows<const In> read_upstream(int m, const Tile& tile, Int row, Int rows, bool pull) {
        if (!pull || !job_.upstream[m].data) return upstream_[m].rows(tile, row, rows);
        const Rows<In> copy = upstream_[m].copy(tile, row, rows);
        pull_first_rows(job_, m, copy, tile.lanes);
        return copy;
    }

    // Adds what comes from the start row, if there is one, and hands the start's gradient over.
    void finish(const Tile& tile, Int lead, const Rows<const In>* upstream, Out* actions) {
        for (int m = 0; m < 4; m++) {
            double* state = state_.at + m * pitch_;
            for (Int i = 0; lead && i < tile.lanes; i++)
                state[i] += upstream[m].at[i - upstream[m].pitch];
            write_state(job_, job_.start_gradient[m], tile, job_.recorded ? zeros_.at : state);
            write_state(job_, job_.goal_gradient[m], tile, zeros_.at);
        }
        for (Int i = 0; job_.recorded && i < tile.lanes; i++)
            actions[i] = static_cast<Out>(state_.at[i]);
    }

    const Job& job_;
    const Int pitch_;
    Steps steps_;
    Reader<In> upstream_[4];
    Buffer<double> state_, zeros_;
};

}  // namespace LEVEL
