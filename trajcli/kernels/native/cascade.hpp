// The cascade and its adjoint: see Cascade in kernels/program.py. Every scheme is one companion
// step, whose transpose reads the same coefficients. Included by level.hpp after tile.hpp.

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

// The coefficients of a step: one over dt, then those of Job.carry, Job.now and Job.before times
// their powers of dt.
enum { INVERSE, CARRY, NOW = CARRY + 2, BEFORE = NOW + 3, COEFFICIENTS = BEFORE + 3 };

inline void make_coefficients(const Job& job, int order, bool before, Vec dt, Vec* to) {
    Vec power = dt;
    to[INVERSE] = 1.0 / dt;
    for (int n = 0; n < order; n++, power *= dt) {
        if (n < 2) to[CARRY + n] = job.carry[n] * power;
        to[NOW + n] = job.now[n] * power;
        if (before) to[BEFORE + n] = job.before[n] * power;
    }
}

// The steps of some rows. Where trajectories share them or are alone, their coefficients are made
// once; else each lane has a dt of its own.
class Steps {
public:
    Steps(const Job& job, const Split& split, Int rows)
        : job_(job),
          split_(split),
          even_(job.dt.stride[1] == 0),
          shared_(job.dt.stride[0] == 0),
          lanes(split.group > 1 && !shared_),
          flat_(lanes ? (even_ ? 1 : rows) * split.group : 0),
          dt_((even_ ? 1 : rows) * (lanes ? split.lanes : 1)),
          table_(lanes ? 0 : ((even_ ? 1 : rows) / W + 1) * COEFFICIENTS * W) {}

    // Those of ``rows`` steps from ``row`` on, of a group of trajectories.
    void make(Int batch, Int group, Int row, Int rows) {
        if (even_) row = 0, rows = 1;
        if (shared_) batch = 0;
        if (batch == batch_ && row == row_ && rows == rows_) return;
        batch_ = batch, row_ = row, rows_ = rows;
        if (lanes) {
            read_steps(job_.dt, batch, group, row, rows, flat_.at);
            return spread(flat_.at, group, rows, job_.dofs, dt_.at, split_.lanes);
        }
        read_steps(job_.dt, batch, 1, row, rows, dt_.at);
        for (Int t = 0; t < rows; t += W) {
            Vec made[COEFFICIENTS] = {};
            make_coefficients(job_, static_cast<int>(job_.order), job_.before[0] != 0,
                              load(dt_.at + t), made);
            std::memcpy(table_.at + t * COEFFICIENTS, made, sizeof made);
        }
    }

    // What was made, for a kernel.
    struct Table {
        const Job& job;
        const double* from;
        Int apart;
        bool even;

        // The coefficients of step ``t``, in whose place are those of the step before.
        template <int ORDER, bool BEFORE_, bool LANES>
        void take(Int t, Int column, bool first, Vec* to) const {
            if (even && !first) return;
            if (even) t = 0;
            if (LANES)
                return make_coefficients(job, ORDER, BEFORE_, load(from + t * apart + column), to);
            const double* table = from + t / W * COEFFICIENTS * W + t % W;
            for (int k = 0; k < COEFFICIENTS; k++) to[k] = all(table[k * W]);
        }
    };

    Table table() const { return {job_, lanes ? dt_.at : table_.at, split_.lanes, even_}; }

private:
    const Job& job_;
    const Split& split_;
    const bool even_, shared_;
    Int batch_ = -2, row_ = -1, rows_ = -1;

public:
    const bool lanes;  // whether each lane has a step of its own

private:
    Buffer<double> flat_, dt_, table_;
};

// One strip of ``rows`` rows; state: four vectors, ``pitch`` apart, those before the first row;
// after: where those of the last go.
template <int ORDER, bool LAST, bool LANES, class Out, class In>
void cascade_strip(Int rows, Steps::Table steps, Input<In> actions, const double* state,
                   Int pitch, double* after, Int after_pitch, Rows<Out> const* out, Int column) {
    Vec x[4], y[4], c[COEFFICIENTS] = {};
    for (int m = 0; m < 4; m++) x[m] = load(state + m * pitch + column);
    Out* to[4];
    for (int m = 0; m < 4; m++) to[m] = out[m].at + column;
    const Int apart = out[0].apart;
    for (Int t = 0; t < rows; t++) {
        steps.template take<ORDER, LAST, LANES>(t, column, t == 0, c);
        const Vec u = load(actions.at + t * actions.apart + column);
        for (int m = 0; m < ORDER; m++) {
            const int n = ORDER - m;
            Vec change = c[NOW + n - 1] * u;
            if (LAST) change += c[BEFORE + n - 1] * x[ORDER];
            for (int r = 1; r < n; r++) change += c[CARRY + r - 1] * x[m + r];
            y[m] = x[m] + change;
        }
        y[ORDER] = u;
        for (int m = ORDER + 1; m < 4; m++)
            y[m] = (y[m - 1] - x[m - 1]) * c[INVERSE];
        for (int m = 0; m < 4; m++) {
            store(to[m] + t * apart, y[m]);
            x[m] = y[m];
        }
    }
    for (int m = 0; m < 4; m++) store(after + m * after_pitch + column, x[m]);
}

// Its transpose, last row first. The state is the gradient of the state that a row leaves behind:
// what all later rows give it; in ``before``, that of the state before the first of these rows.
template <int ORDER, bool LAST, bool LANES, class Out, class In>
void cascade_adjoint_strip(Int rows, Steps::Table steps, const Input<In>* upstream,
                           const double* state, double* before, Int pitch, Rows<Out> actions,
                           Int column) {
    Vec z[4], total[4], c[COEFFICIENTS] = {};
    for (int m = 0; m < 4; m++) z[m] = load(state + m * pitch + column);
    const Input<In> from[4] = {upstream[0], upstream[1], upstream[2], upstream[3]};
    for (Int t = rows - 1; t >= 0; t--) {
        steps.template take<ORDER, LAST, LANES>(t, column, t == rows - 1, c);
        for (int m = 0; m < 4; m++)
            total[m] = z[m] + load(from[m].at + t * from[m].apart + column);
        if (ORDER < 3) z[3] = Vec{};
        for (int m = 3; m > ORDER; m--) {
            const Vec slope = total[m] * c[INVERSE];
            total[m - 1] += slope;
            z[m - 1] = -slope;
        }
        if (ORDER == 3) z[3] = Vec{};
        Vec u = total[ORDER];
        for (int m = 0; m < ORDER; m++) {
            const int n = ORDER - m;
            u += c[NOW + n - 1] * total[m];
            if (LAST) z[ORDER] += c[BEFORE + n - 1] * total[m];
            z[m] = total[m];
            for (int r = 1; r <= m; r++) z[m] += c[CARRY + r - 1] * total[m - r];
        }
        store(actions.at + t * actions.apart + column, u);
    }
    for (int m = 0; m < 4; m++) store(before + m * pitch + column, z[m]);
}

// The kernel for an order, whether the action before counts and whether lanes differ in step.
#define CHOOSE(kernel, order, before) (lanes ? kernel<order, before, true, Out, In> : kernel<order, before, false, Out, In>)
#define CHOOSE_CASCADE(kernel)                                             \
    const bool before = job.before[0] != 0;                                \
    switch (job.order) {                                                   \
        case 0: return CHOOSE(kernel, 0, false);                           \
        case 1: return before ? CHOOSE(kernel, 1, true) : CHOOSE(kernel, 1, false); \
        case 2: return before ? CHOOSE(kernel, 2, true) : CHOOSE(kernel, 2, false); \
        default: return before ? CHOOSE(kernel, 3, true) : CHOOSE(kernel, 3, false); \
    }

template <class Out, class In>
auto choose_cascade(const Job& job, bool lanes) -> decltype(&cascade_strip<0, false, false, Out, In>) {
    CHOOSE_CASCADE(cascade_strip)
}

template <class Out, class In>
auto choose_cascade_adjoint(const Job& job, bool lanes)
    -> decltype(&cascade_adjoint_strip<0, false, false, Out, In>) {
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

template <class In>
void pull_first_rows(const Job& job, int m, In* rows, Int apart, Int columns) {
    for (Int t = 0; t < m && t < job.rows; t++)
        for (Int i = 0; i < columns; i++) {
            if (m < job.rows) rows[m * apart + i] += rows[t * apart + i];
            rows[t * apart + i] = 0;
        }
}

template <class Out, class In>
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
          kernel_(choose_cascade<Out, In>(job_, steps_.lanes)) {}

    static constexpr bool BACKWARDS = false;

    void operator()(const Place& place, Int batch, Int group) {
        const bool starts = lead_ && place.row == 0;
        const Int row = starts ? 0 : place.row - lead_, rows = place.rows - starts;
        const Int columns = this->columns(place, group);
        const double* state = state_;
        Int pitch = pitch_;
        if (place.row == 0 && job_.recorded) {
            read_first(place, batch, group);
        } else if (place.row == 0) {
            state = start_.at(place, batch, group);
            pitch = start_.pitch;
        }
        steps_.make(batch, group, row, rows);
        const Input<In> actions =
            reader_.read_rows(place, batch, group, row + job_.recorded, rows, actions_.at);
        Rows<Out> out[4];
        for (int m = 0; m < 4; m++) out[m] = this->rows_of(m, place);
        if (starts) this->put_state(out, state, pitch, columns);
        each_strip(columns, [&](Int column) {
            kernel_(rows, steps_.table(), actions, state, pitch, after_, pitch_, out, column);
        });
        std::swap(state_, after_);
        for (int m = 0; m < 4; m++) {
            if (job_.recorded && starts)
                fill_first_rows(job_, m, out[m].at - out[m].apart, out[m].apart, columns);
            this->finish_rows(m, place, group);
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
    Reader<In> reader_;
    Buffer<In> actions_;
    Buffer<double> states_;
    double *state_ = states_.at, *after_ = states_.at + 4 * pitch_;
    decltype(&cascade_strip<0, false, false, Out, In>) const kernel_;
};

// Tiles are of rows of actions; those that are not used are zero.
template <class Out, class In>
class CascadeAdjoint : public Tiles<Out> {
public:
    CascadeAdjoint(Run& run, Int items)
        : Tiles<Out>(run, items, run.job.horizon, 1),
          pitch_(split_.lanes + W),
          steps_(job_, split_, rows_),
          upstream_(run, split_, rows_ + 1),
          states_(8 * pitch_),
          kernel_(choose_cascade_adjoint<Out, In>(job_, steps_.lanes)) {}

    static constexpr bool BACKWARDS = true;

    void operator()(const Place& place, Int batch, Int group) {
        // the first action of a recording is its start state
        const Int first = job_.recorded && place.row == 0;
        const Int lead = place.row == 0 && (job_.recorded || job_.start_row);
        const Int row = place.row + first;
        const Int rows = std::max(std::min(place.row + place.rows, job_.used) - row, Int(0));
        const Int columns = this->columns(place, group);
        if (place.row + place.rows >= job_.horizon)
            std::memset(state_, 0, 4 * pitch_ * sizeof(double));
        Input<In> upstream[4];
        for (int m = 0; m < 4; m++) {
            const Int from = row + job_.start_row - lead;
            upstream[m] = upstream_.read_rows(m, place, batch, group, from, rows + lead);
            if (first) pull_first_rows(job_, m, const_cast<In*>(upstream[m].at), upstream[m].apart, columns);
            upstream[m].at += lead * upstream[m].apart;
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
        this->finish_rows(0, place, group, true);
    }

private:
    using Tiles<Out>::run_;
    using Tiles<Out>::job_;
    using Tiles<Out>::split_;
    using Tiles<Out>::rows_;

    // Adds what comes from the start row, if there is one, and hands the start's gradient over.
    void finish(const Place& place, Int batch, Int group, Int lead, const Input<In>* upstream,
                Out* actions) {
        const Int columns = this->columns(place, group);
        std::memset(after_, 0, columns * sizeof(double));
        for (int m = 0; m < 4; m++) {
            double* state = state_ + m * pitch_;
            for (Int i = 0; lead && i < columns; i++) state[i] += upstream[m].at[i - upstream[m].apart];
            write_state(job_, job_.start_gradient[m], place, batch, group,
                        job_.recorded ? after_ : state);
            write_state(job_, job_.goal_gradient[m], place, batch, group, after_);
        }
        for (Int i = 0; job_.recorded && job_.used > 0 && i < columns; i++)
            actions[i] = static_cast<Out>(state_[i]);
    }

    const Int pitch_;
    Steps steps_;
    Upstream<In> upstream_;
    Buffer<double> states_;
    double *state_ = states_.at, *after_ = states_.at + 4 * pitch_;
    decltype(&cascade_adjoint_strip<0, false, false, Out, In>) const kernel_;
};

}  // namespace LEVEL
