// The cascade and its adjoint: see Cascade in kernels/program.py. Every scheme is one companion
// step, whose transpose reads the same coefficients. Included by each level*.cpp after tile.hpp.

namespace LEVEL {

// Steps of some trajectories, one trajectory after another.
inline void read_steps(const Array& dt, Int batch, Int count, Int row, Int rows, double* to) {
    for (Int g = 0; g < count; g++, to += rows) {
        const char* from = element(dt, batch + g, row, 0);
        if (dt.stride[1] == sizeof(double))
            std::memcpy(to, from, rows * sizeof(double));
        else
            for (Int t = 0; t < rows; t++)
                std::memcpy(to + t, from + t * dt.stride[1], sizeof(double));
    }
}

// What each trajectory of a group has one of a row, in all of its lanes.
template <int DOFS>
void spread(const double* from, Int rows, double* to) {
    for (Int t = 0; t < rows; t++, from++)
        for (int g = 0; g < W / DOFS; g++)
            for (int d = 0; d < DOFS; d++) to[t * W + g * DOFS + d] = from[g * rows];
}

inline void spread(const double* from, Int rows, Int dofs, double* to) {
    if (dofs == 1) return spread<1>(from, rows, to);
    if (dofs == 2) return spread<2>(from, rows, to);
    if (dofs == 3) return spread<3>(from, rows, to);
    return spread<4>(from, rows, to);
}

// The coefficients of each step, made once where trajectories share them: one over dt, then
// those of Job.carry, Job.now and Job.before times their powers of dt.
class Steps {
public:
    enum { INVERSE, CARRY, NOW = CARRY + 2, BEFORE = NOW + 3, COUNT = BEFORE + 3 };

    Steps(const Job& job, const Split& split, Int rows)
        : job_(job),
          group_(split.group),
          even_(job.dt.stride[1] == 0),
          shared_(job.dt.stride[0] == 0),
          lanes(group_ > 1 && !shared_),
          flat_(lanes ? rows * group_ : 0),
          dt_((even_ ? 1 : rows) * (lanes ? W : 1)),
          table_(((even_ ? 1 : rows) * (lanes ? W : 1) / W + 1) * COUNT * W) {}

    // Those of ``rows`` steps from ``row`` on, of trajectories from ``batch`` on.
    void make(Int batch, Int count, Int row, Int rows) {
        if (even_) row = 0, rows = 1;
        if (shared_) batch = -1;
        if (batch == batch_ && row == row_ && rows == rows_) return;
        batch_ = batch, row_ = row, rows_ = rows;
        const Int total = rows * (lanes ? W : 1);
        read_steps(job_.dt, shared_ ? 0 : batch, lanes ? count : 1, row, rows,
                   lanes ? flat_.at : dt_.at);
        if (lanes) spread(flat_.at, rows, job_.dofs, dt_.at);
        const bool before = job_.before[0] != 0;
        for (Int i = 0; i < total; i += W) {
            double* to = table_.at + i * COUNT;
            const Vec dt = load(dt_.at + i);
            Vec power = dt;
            store(to + INVERSE * W, 1.0 / dt);
            for (int n = 0; n < job_.order; n++, power *= dt) {
                if (n < 2) store(to + (CARRY + n) * W, job_.carry[n] * power);
                store(to + (NOW + n) * W, job_.now[n] * power);
                if (before) store(to + (BEFORE + n) * W, job_.before[n] * power);
            }
        }
    }

    // What was made, for a kernel.
    struct Table {
        const double* from;
        Int mask;

        // The first coefficient of step ``t``; W numbers on is the next.
        template <bool LANES>
        const double* at(Int t) const {
            t &= mask;
            return LANES ? from + t * COUNT * W : from + t / W * COUNT * W + t % W;
        }
    };

    Table table() const { return {table_.at, even_ ? 0 : -1}; }

private:
    const Job& job_;
    const Int group_;
    const bool even_, shared_;
    Int batch_ = -2, row_ = -1, rows_ = -1;

public:
    const bool lanes;  // whether each lane has a step of its own

private:
    Buffer<double> flat_, dt_, table_;
};

template <bool LANES>
inline Vec coefficient(const double* from, int k) {
    return LANES ? load(from + k * W) : all(from[k * W]);
}

// One strip of ``rows`` rows; state: four vectors, ``pitch`` apart, those before the first row;
// after: where those of the last go.
template <int ORDER, bool BEFORE, bool LANES, class Out>
void cascade_strip(Int rows, Steps::Table steps, Input actions, const double* state,
                   Int pitch, double* after, Int after_pitch, Rows<Out> const* out, Int column) {
    Vec x[4], y[4];
    for (int m = 0; m < 4; m++) x[m] = load(state + m * pitch + column);
    Out* to[4];
    for (int m = 0; m < 4; m++) to[m] = out[m].at + column;
    const Int apart = out[0].apart;
    for (Int t = 0; t < rows; t++) {
        const double* c = steps.template at<LANES>(t);
        const Vec u = load(actions.at + t * actions.apart + column);
        actions.prefetch(t, column);
        for (int m = 0; m < ORDER; m++) {
            const int n = ORDER - m;
            Vec change = coefficient<LANES>(c, Steps::NOW + n - 1) * u;
            if (BEFORE) change += coefficient<LANES>(c, Steps::BEFORE + n - 1) * x[ORDER];
            for (int r = 1; r < n; r++)
                change += coefficient<LANES>(c, Steps::CARRY + r - 1) * x[m + r];
            y[m] = x[m] + change;
        }
        y[ORDER] = u;
        for (int m = ORDER + 1; m < 4; m++)
            y[m] = (y[m - 1] - x[m - 1]) * coefficient<LANES>(c, Steps::INVERSE);
        for (int m = 0; m < 4; m++) {
            store(to[m] + t * apart, y[m]);
            x[m] = y[m];
        }
    }
    for (int m = 0; m < 4; m++) store(after + m * after_pitch + column, x[m]);
}

// Its transpose, last row first. The state is the gradient of the state that a row leaves behind:
// what all later rows give it; in ``before``, that of the state before the first of these rows.
template <int ORDER, bool BEFORE, bool LANES, class Out>
void cascade_adjoint_strip(Int rows, Steps::Table steps, const Input* upstream,
                           const double* state, double* before, Int pitch, Rows<Out> actions,
                           Int column) {
    Vec z[4], total[4];
    for (int m = 0; m < 4; m++) z[m] = load(state + m * pitch + column);
    const Input from[4] = {upstream[0], upstream[1], upstream[2], upstream[3]};
    for (Int t = rows - 1; t >= 0; t--) {
        const double* c = steps.template at<LANES>(t);
        for (int m = 0; m < 4; m++) {
            total[m] = z[m] + load(from[m].at + t * from[m].apart + column);
            from[m].prefetch(t, column);
        }
        if (ORDER < 3) z[3] = Vec{};
        for (int m = 3; m > ORDER; m--) {
            const Vec slope = total[m] * coefficient<LANES>(c, Steps::INVERSE);
            total[m - 1] += slope;
            z[m - 1] = -slope;
        }
        if (ORDER == 3) z[3] = Vec{};
        Vec u = total[ORDER];
        for (int m = 0; m < ORDER; m++) {
            const int n = ORDER - m;
            u += coefficient<LANES>(c, Steps::NOW + n - 1) * total[m];
            if (BEFORE) z[ORDER] += coefficient<LANES>(c, Steps::BEFORE + n - 1) * total[m];
            z[m] = total[m];
            for (int r = 1; r <= m; r++)
                z[m] += coefficient<LANES>(c, Steps::CARRY + r - 1) * total[m - r];
        }
        store(actions.at + t * actions.apart + column, u);
    }
    for (int m = 0; m < 4; m++) store(before + m * pitch + column, z[m]);
}

// The kernel for an order, whether the action before counts and whether lanes differ in step.
#define CHOOSE(kernel, order, before) (lanes ? kernel<order, before, true, Out> : kernel<order, before, false, Out>)
#define CHOOSE_CASCADE(kernel)                                             \
    const bool before = job.before[0] != 0;                                \
    switch (job.order) {                                                   \
        case 0: return CHOOSE(kernel, 0, false);                           \
        case 1: return before ? CHOOSE(kernel, 1, true) : CHOOSE(kernel, 1, false); \
        case 2: return before ? CHOOSE(kernel, 2, true) : CHOOSE(kernel, 2, false); \
        default: return before ? CHOOSE(kernel, 3, true) : CHOOSE(kernel, 3, false); \
    }

template <class Out>
auto choose_cascade(const Job& job, bool lanes) -> decltype(&cascade_strip<0, false, false, Out>) {
    CHOOSE_CASCADE(cascade_strip)
}

template <class Out>
auto choose_cascade_adjoint(const Job& job, bool lanes)
    -> decltype(&cascade_adjoint_strip<0, false, false, Out>) {
    CHOOSE_CASCADE(cascade_adjoint_strip)
}
#undef CHOOSE_CASCADE
#undef CHOOSE

// The first rows of a recording have no rows to be differenced from: order m takes row m.
template <class Out>
void fill_first_rows(const Job& job, int m, Out* rows, Int apart, Int columns) {
    for (Int t = 0; t < m && t < job.rows; t++)
        for (Int i = 0; i < columns; i++)
            rows[t * apart + i] = m < job.rows ? rows[m * apart + i] : Out(0);
}

inline void pull_first_rows(const Job& job, int m, double* rows, Int apart, Int columns) {
    for (Int t = 0; t < m && t < job.rows; t++)
        for (Int i = 0; i < columns; i++) {
            if (m < job.rows) rows[m * apart + i] += rows[t * apart + i];
            rows[t * apart + i] = 0.0;
        }
}

template <class Out>
class Cascade : public Tiles<Out> {
public:
    Cascade(Run& run, Int items)
        : Tiles<Out>(run, items, run.job.rows, 4),
          lead_(job_.start_row || job_.recorded),
          pitch_(split_.lanes + W),
          steps_(job_, split_, rows_),
          start_(run, split_, job_.start, job_.start_index),
          reader_(run, split_, job_.actions, rows_),
          actions_(rows_ * split_.lanes),
          states_(8 * pitch_),
          kernel_(choose_cascade<Out>(job_, steps_.lanes)) {}

    static constexpr bool BACKWARDS = false;

    void operator()(const Place& place, Int batch, Int group) {
        const bool starts = lead_ && place.row == 0;
        const Int row = starts ? 0 : place.row - lead_, rows = place.rows - starts;
        const Int columns = this->columns(place);
        const double* state = state_;
        Int pitch = pitch_;
        if (place.row == 0 && job_.recorded) {
            read_first(place, batch, group);
        } else if (place.row == 0) {
            state = start_.at(place, batch);
            pitch = start_.pitch;
        }
        steps_.make(batch, group, row, rows);
        const Input actions =
            reader_.read_rows(place, batch, row + job_.recorded, rows, actions_.at);
        Rows<Out> out[4];
        for (int m = 0; m < 4; m++) out[m] = this->rows_of(m, place);
        if (starts) this->put_state(out, state, pitch, columns);
        each_strip(columns, [&](Int column) {
            kernel_(rows, steps_.table(), actions, state, pitch, after_, pitch_, out, column);
        });
        std::swap(state_, after_);
        for (int m = 0; m < 4; m++) {
            if (job_.recorded && starts)
                fill_first_rows(job_, m, out[m].at - columns, columns, columns);
            this->finish_rows(m, place);
        }
    }

private:
    using Tiles<Out>::run_;
    using Tiles<Out>::job_;
    using Tiles<Out>::split_;
    using Tiles<Out>::rows_;

    // A recording starts with its first action.
    void read_first(const Place& place, Int batch, Int group) {
        std::memset(state_, 0, 4 * pitch_ * sizeof(double));
        read(run_, job_.actions, batch, group, 0, 1, place.column, place.columns, state_);
    }

    const Int lead_, pitch_;
    Steps steps_;
    States start_;
    Reader reader_;
    Buffer<double> actions_, states_;
    double *state_ = states_.at, *after_ = states_.at + 4 * pitch_;
    decltype(&cascade_strip<0, false, false, Out>) const kernel_;
};

// Tiles are of rows of actions; those that are not used are zero.
template <class Out>
class CascadeAdjoint : public Tiles<Out> {
public:
    CascadeAdjoint(Run& run, Int items)
        : Tiles<Out>(run, items, run.job.horizon, 1),
          pitch_(split_.lanes + W),
          steps_(job_, split_, rows_),
          upstream_(run, split_, rows_ + 1),
          states_(8 * pitch_),
          kernel_(choose_cascade_adjoint<Out>(job_, steps_.lanes)) {}

    static constexpr bool BACKWARDS = true;

    void operator()(const Place& place, Int batch, Int group) {
        // the first action of a recording is its start state
        const Int first = job_.recorded && place.row == 0;
        const Int lead = place.row == 0 && (job_.recorded || job_.start_row);
        const Int row = place.row + first;
        const Int rows = std::max(std::min(place.row + place.rows, job_.used) - row, Int(0));
        const Int columns = this->columns(place);
        if (place.row + place.rows >= job_.horizon)
            std::memset(state_, 0, 4 * pitch_ * sizeof(double));
        Input upstream[4];
        for (int m = 0; m < 4; m++) {
            upstream[m] = upstream_.read_rows(m, place, batch, row + job_.start_row - lead, rows + lead);
            if (first) pull_first_rows(job_, m, upstream[m].at, columns, columns);
            upstream[m].at += lead * columns;
        }
        steps_.make(batch, group, row - job_.recorded, rows);
        const Rows<Out> actions = this->rows_of(0, place, true);
        const Rows<Out> used = {actions.at + first * actions.apart, actions.apart};
        each_strip(columns, [&](Int column) {
            kernel_(rows, steps_.table(), upstream, state_, after_, pitch_, used, column);
        });
        std::swap(state_, after_);
        for (Int t = rows + first; t < place.rows; t++)
            std::memset(static_cast<void*>(actions.at + t * actions.apart), 0, columns * sizeof(Out));
        if (place.row == 0) finish(place, batch, group, lead, upstream, actions.at);
        this->finish_rows(0, place, true);
    }

private:
    using Tiles<Out>::run_;
    using Tiles<Out>::job_;
    using Tiles<Out>::split_;
    using Tiles<Out>::rows_;

    // Adds what comes from the start row, if there is one, and hands the start's gradient over.
    void finish(const Place& place, Int batch, Int group, Int lead, const Input* upstream,
                Out* actions) {
        const Int columns = this->columns(place);
        std::memset(after_, 0, columns * sizeof(double));
        for (int m = 0; m < 4; m++) {
            double* state = state_ + m * pitch_;
            for (Int i = 0; lead && i < columns; i++) state[i] += upstream[m].at[i - columns];
            write_state(job_, job_.start_gradient[m], place, batch, group,
                        job_.recorded ? after_ : state);
            write_state(job_, job_.goal_gradient[m], place, batch, group, after_);
        }
        for (Int i = 0; job_.recorded && job_.used > 0 && i < columns; i++)
            actions[i] = static_cast<Out>(state_[i]);
    }

    const Int pitch_;
    Steps steps_;
    Upstream upstream_;
    Buffer<double> states_;
    double *state_ = states_.at, *after_ = states_.at + 4 * pitch_;
    decltype(&cascade_adjoint_strip<0, false, false, Out>) const kernel_;
};

}  // namespace LEVEL
