// The band and its adjoint: see Band in kernels/program.py. Included by each level*.cpp after
// cascade.hpp.

namespace LEVEL {

// First windows and kinds of rows: Windows in kernels/program.py.
inline Int first_point(const Job& job, Int row) {
    const Int at = row + job.window_offset, steps = job.window_steps;
    const Int first = (at >= 0 ? at / steps : -((steps - 1 - at) / steps)) - job.window_shift;
    return first < 0 ? 0 : first > job.window_last ? job.window_last : first;
}

// The first row whose window begins at ``point`` or later.
inline Int first_row(const Job& job, Int point) {
    Int low = 0, high = job.window_count;
    while (low < high) {
        const Int middle = low + (high - low) / 2;
        if (first_point(job, middle) < point)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Weights of derivatives 1 to 3 on differences of neighbours of five points, at the point
// ``base`` of them: those of Newton's divided differences, which subtract no times. gap: between
// the points; inverse[k][j]: one over the length of the k + 1 gaps from j on.
// weights[4 (m - 1) + i]: order m, difference i.
inline void stencil(const Vec gap[4], const Vec inverse[4][4], int base, Vec weights[12]) {
    Vec time[5];  // of the points, since the base
    time[base] = Vec{};
    for (int i = base; i < 4; i++) time[i + 1] = time[i] + gap[i];
    for (int i = base; i > 0; i--) time[i - 1] = time[i] - gap[i - 1];
    // divided[j][i]: of the k + 2 points from j on, the weight of difference j + i
    Vec divided[4][4];
    // the derivatives at 0, over their factorials, of the product of (x - time_0) … (x - time_k)
    Vec power[4] = {-time[0], all(1.0), Vec{}, Vec{}};
    for (int i = 0; i < 12; i++) weights[i] = Vec{};
    for (int k = 0; k < 4; k++) {
        for (int j = 0; j + k < 4; j++)
            for (int i = k; i >= 0; i--) {
                if (k == 0) {
                    divided[j][0] = inverse[0][j];
                    continue;
                }
                Vec change = i > 0 ? divided[j + 1][i - 1] : Vec{};
                if (i < k) change -= divided[j][i];
                divided[j][i] = change * inverse[k][j];
            }
        for (int m = 1; m <= 3 && m <= k + 1; m++)
            for (int i = 0; i <= k; i++)
                weights[4 * (m - 1) + i] += (m == 3 ? 6.0 : m) * power[m] * divided[0][i];
        for (int m = 3; k < 3 && m > 0; m--) power[m] = power[m - 1] - time[k + 1] * power[m];
        if (k < 3) power[0] = -time[k + 1] * power[0];
    }
}

// The powers of the spacing of a group's trajectories and one over them, in each lane its own.
class Spacing {
public:
    Spacing(const Job& job, const Split& split)
        : job_(job), lanes_(Split::whole(split.lanes)), values_(8 * lanes_) {}

    void make(const Place& place, Int batch, Int group) {
        if (job_.dt.stride[0] == 0 && columns_ == group * place.columns) return;
        columns_ = group * place.columns;
        double* h = values_.at + lanes_;
        for (Int i = 0; i < columns_; i++)
            h[i] = static_cast<double>(job_.spacing) * step_at(job_.dt, batch + i / place.columns, 0);
        for (Int i = 0; i < columns_; i += W) {
            Vec power = all(1.0);
            for (Int m = 0; m < 4; m++, power *= load(h + i)) {
                store(values_.at + m * lanes_ + i, power);
                store(values_.at + (4 + m) * lanes_ + i, 1.0 / power);
            }
        }
    }

    Vec power(int m, Int column) const { return load(values_.at + m * lanes_ + column); }
    Vec inverse(int m, Int column) const { return power(4 + m, column); }

private:
    const Job& job_;
    const Int lanes_;
    Int columns_ = 0;
    Buffer<double> values_;
};

// What a row takes: its first point and the point its position is based on, where its weights
// begin, and which differences [begin, end) have weight.
struct Window {
    Int first, base, weights, begin, end;
};

// What a strip of rows is made from.
struct Windowed {
    Int rows;
    const Window* at;
    const double* weights;
    Int differences, lanes;
    const Spacing* scale;  // or null: none

    // Calls ``add`` with each difference of a row. Those without weight are left out, so that no
    // NaN comes through a weight of zero.
    template <int DIFFERENCES, class Add>
    void each(const Window& row, Add add) const {
        const Int count = DIFFERENCES < 0 ? differences : DIFFERENCES;
        if (row.end - row.begin == count)
            for (Int i = 0; i < count; i++) add(i);
        else
            for (Int i = 0; i < count; i++)
                if (i >= row.begin && i < row.end) add(i);
    }
};

// Which points and weights each of some rows takes, made once where trajectories share them.
class Weights {
public:
    static constexpr Int COUNT = 12;  // of a row whose steps differ

    Weights(const Job& job, const Split& split, Int rows)
        : job_(job),
          split_(split),
          shared_(job.dt.stride[0] == 0),
          lanes(!job.table && split.group > 1 && !shared_),
          width_(lanes ? split.lanes : 1),
          kinds_(job.kinds),
          rows_at_(rows),
          table_(job.table ? job.kinds * 4 * job.width : rows * COUNT * width_),
          pitch_((rows + 2 * job.width) * width_ + W),
          flat_(job.table ? 0 : (rows + 2 * job.width) * split.group),
          gaps_(job.table ? 0 : 5 * pitch_) {
        for (Int kind = 0; kind < job.kinds; kind++) kinds_.at[kind] = find_used(kind);
        for (Int kind = 0; kind < job.kinds; kind++) narrow(kind, kinds_.at[kind]);
    }

    // Those of ``rows`` rows from ``row`` on, of trajectories from ``batch`` on, whose points
    // begin with point ``from``.
    void make(Int batch, Int count, Int row, Int rows, Int from) {
        const bool same = row == row_ && rows == rows_ && from == from_;
        if (shared_ || job_.table) batch = -1;
        if (same && batch == batch_) return;
        batch_ = batch, row_ = row, rows_ = rows, from_ = from;
        for (Int t = 0; t < rows; t++) {
            const Int first = first_point(job_, row + t);
            const Int kind = row + t + job_.window_offset - job_.window_steps * first;
            Window& window = rows_at_.at[t] = kinds_.at[kind];
            window.first += first - from;
            if (!job_.table) window.weights = t * COUNT * width_;
        }
        if (job_.table || rows == 0) return;
        measure(shared_ ? 0 : batch, lanes ? count : 1, rows_at_.at[0].first,
                rows_at_.at[rows - 1].first + job_.width - 1);
        lanes ? make_lanes(rows, count * job_.dofs) : make_rows(rows);
    }

    Windowed windows(const Spacing& spacing) const {
        return {rows_, rows_at_.at, table_.at, differences, width_, job_.table ? &spacing : nullptr};
    }

private:
    // The differences of a kind that have weight, and in ``differences`` the most that any kind has.
    Window find_used(Int kind) {
        const Int count = job_.width - 1;
        Window found = {0, static_cast<const Int*>(job_.base)[kind], 0, 0, count};
        auto none = [&](Int i) {
            const double* table = static_cast<const double*>(job_.table) + kind * 4 * count + i;
            return table[0] == 0 && table[count] == 0 && table[2 * count] == 0 &&
                   table[3 * count] == 0;
        };
        while (job_.table && found.end > 0 && none(found.end - 1)) found.end--;
        while (job_.table && found.begin < found.end && none(found.begin)) found.begin++;
        differences = std::max(differences, found.end - found.begin);
        return found;
    }

    // The window and the weights of a kind, with ``differences`` only.
    void narrow(Int kind, Window& window) {
        const Int count = job_.width - 1, shift = std::min(window.begin, count - differences);
        window.first = shift;
        window.base -= shift;
        window.begin -= shift;
        window.end -= shift;
        window.weights = (kind * 4 + job_.copies) * differences;
        const double* from = static_cast<const double*>(job_.table) + kind * 4 * count + shift;
        for (Int m = 0; job_.table && m < 4; m++)
            for (Int i = 0; i < differences; i++)
                table_.at[(kind * 4 + m) * differences + i] = from[m * count + i];
    }

    // The gaps after points [begin, end) and, in four more arrays, one over the lengths of one to
    // four of them from there on.
    void measure(Int batch, Int group, Int begin, Int end) {
        const Int count = end - begin;
        const Int head = job_.head_count > 0 ? job_.head_count - 1 : 0;
        origin_ = begin;
        for (Int g = 0; g < group; g++)
            for (Int i = 0; i < count; i++) {
                const Int step = from_ + begin + i - head, last = job_.steps - 1;
                flat_.at[g * count + i] =
                    step_at(job_.dt, batch + g, step < 0 ? 0 : step < last ? step : last);
            }
        if (lanes)
            spread(flat_.at, group, count, job_.dofs, gaps_.at, width_);
        else
            std::memcpy(gaps_.at, flat_.at, count * sizeof(double));
        for (Int i = 0; i < count * width_; i += W) {
            Vec length = {};
            for (Int k = 0; k < 4; k++) {
                length += load(gaps_.at + i + k * width_);
                store(gaps_.at + (k + 1) * pitch_ + i, 1.0 / length);
            }
        }
    }

    // Weights at W places behind each other, whose gaps begin at ``at``.
    void make_some(Int at, Int base, Vec* weights) const {
        Vec gap[4], inverse[4][4];
        for (int j = 0; j < 4; j++) {
            gap[j] = load(gaps_.at + at + j * width_);
            for (int k = 0; j + k < 4; k++)
                inverse[k][j] = load(gaps_.at + (k + 1) * pitch_ + at + j * width_);
        }
        switch (base) {  // loops of constant length
            case 0: return stencil(gap, inverse, 0, weights);
            case 1: return stencil(gap, inverse, 1, weights);
            case 3: return stencil(gap, inverse, 3, weights);
            case 4: return stencil(gap, inverse, 4, weights);
            default: return stencil(gap, inverse, 2, weights);
        }
    }

    void make_lanes(Int rows, Int columns) {
        for (Int t = 0; t < rows; t++)
            for (Int column = 0; column < columns; column += W) {
                Vec weights[COUNT];
                const Window& row = rows_at_.at[t];
                make_some((row.first - origin_) * width_ + column, row.base, weights);
                for (Int i = 0; i < COUNT; i++)
                    store(table_.at + (t * COUNT + i) * width_ + column, weights[i]);
            }
    }

    // Rows whose windows follow each other at once.
    void make_rows(Int rows) {
        for (Int t = 0, count; t < rows; t += count) {
            for (count = 1; count < W && t + count < rows; count++)
                if (rows_at_.at[t + count].base != rows_at_.at[t].base ||
                    rows_at_.at[t + count].first != rows_at_.at[t].first + count)
                    break;
            Vec found[COUNT];
            make_some(rows_at_.at[t].first - origin_, rows_at_.at[t].base, found);
            double weights[COUNT * W];
            std::memcpy(weights, found, sizeof found);
            for (Int k = 0; k < count; k++)
                for (Int i = 0; i < COUNT; i++) table_.at[(t + k) * COUNT + i] = weights[i * W + k];
        }
    }

    const Job& job_;
    const Split& split_;
    const bool shared_;
    Int batch_ = -2, row_ = -1, rows_ = -1, from_ = -1;

public:
    const bool lanes;  // whether each lane has weights of its own
    Int differences = 0;  // that rows take

private:
    const Int width_;  // numbers of a weight
    Buffer<Window> kinds_, rows_at_;
    Buffer<double> table_;
    const Int pitch_;
    Buffer<double> flat_, gaps_;
    Int origin_ = 0;
};

// DIFFERENCES: of a window, or -1: any number. COPIES: positions are points as they are, and there
// are no weights for them.
template <int DIFFERENCES, bool LANES, bool COPIES, class Out>
void band_strip(Windowed windows, Input<double> points, Rows<Out> const* out, Int column) {
    const Int count = DIFFERENCES < 0 ? windows.differences : DIFFERENCES;
    Out* to[4];
    for (int m = 0; m < 4; m++) to[m] = out[m].at + column;
    const Int apart = out[0].apart, next = points.apart;
    Vec scale[4];
    for (int m = 0; m < 4; m++) scale[m] = windows.scale ? windows.scale->inverse(m, column) : all(1.0);
    constexpr int KEPT = DIFFERENCES < 0 ? 1 : DIFFERENCES;
    Vec kept[KEPT] = {};  // the differences of the window that begins at ``from``
    Int from = -2;
    for (Int t = 0; t < windows.rows; t++) {
        const Window& row = windows.at[t];
        const Int first = row.first;
        const double* point = points.at + first * next + column;
        const double* weights = windows.weights + row.weights + (LANES ? column : 0);
        auto difference = [&](Int i) { return load(point + (i + 1) * next) - load(point + i * next); };
        if (DIFFERENCES > 0 && first == from + 1) {
            for (int i = 0; i + 1 < KEPT; i++) kept[i] = kept[i + 1];
            kept[KEPT - 1] = difference(KEPT - 1);
        } else if (DIFFERENCES > 0 && first != from) {
            for (int i = 0; i < KEPT; i++) kept[i] = difference(i);
        }
        from = first;
        Vec sum[4] = {};
        windows.each<DIFFERENCES>(row, [&](Int i) {
            const Vec change = DIFFERENCES < 0 ? difference(i) : kept[i % KEPT];
            for (int m = COPIES; m < 4; m++) {
                const Int k = (m - COPIES) * count + i;
                const Vec term = (LANES ? load(weights + k * windows.lanes) : all(weights[k])) * change;
                sum[m] = i == 0 ? term : sum[m] + term;
            }
        });
        const Vec position = load(point + row.base * next);
        store(to[0] + t * apart, COPIES ? position : position + sum[0]);
        for (int m = 1; m < 4; m++) store(to[m] + t * apart, sum[m] * scale[m]);
    }
}

// Its transpose: adds to the gradients of points and of their differences, whose rows are whole
// vectors. ``column`` is that of vectors that do not overlap.
template <int DIFFERENCES, bool LANES, bool COPIES, class In>
void band_adjoint_strip(Windowed windows, const Input<In>* upstream, Rows<double> points,
                        Rows<double> differences, Int column) {
    const Int count = DIFFERENCES < 0 ? windows.differences : DIFFERENCES;
    const Input<In> from[4] = {upstream[0], upstream[1], upstream[2], upstream[3]};
    const Int next = points.apart;
    Vec scale[4];
    for (int m = 0; m < 4; m++) scale[m] = windows.scale ? windows.scale->inverse(m, column) : all(1.0);
    constexpr int KEPT = DIFFERENCES < 0 ? 1 : DIFFERENCES;
    Vec kept[KEPT] = {};  // the gradients of the differences of the window that begins at ``at``
    double* at = nullptr;
    for (Int t = 0; t < windows.rows; t++) {
        const Window& row = windows.at[t];
        const double* weights = windows.weights + row.weights + (LANES ? column : 0);
        Vec g[4];
        for (int m = 0; m < 4; m++) g[m] = load(from[m].at + t * from[m].apart + column) * scale[m];
        double* point = points.at + (row.first + row.base) * next + column;
        store(point, load(point) + g[0]);
        double* window = differences.at + row.first * next + column;
        if (DIFFERENCES > 0 && at && window == at + next) {
            store(at, kept[0]);
            for (int i = 0; i + 1 < KEPT; i++) kept[i] = kept[i + 1];
            kept[KEPT - 1] = load(window + (KEPT - 1) * next);
        } else if (DIFFERENCES > 0 && window != at) {
            for (int i = 0; at && i < KEPT; i++) store(at + i * next, kept[i]);
            for (int i = 0; i < KEPT; i++) kept[i] = load(window + i * next);
        }
        at = window;
        windows.each<DIFFERENCES>(row, [&](Int i) {
            Vec sum = DIFFERENCES < 0 ? load(window + i * next) : kept[i % KEPT];
            for (int m = COPIES; m < 4; m++) {
                const Int k = (m - COPIES) * count + i;
                sum += (LANES ? load(weights + k * windows.lanes) : all(weights[k])) * g[m];
            }
            if (DIFFERENCES < 0)
                store(window + i * next, sum);
            else
                kept[i % KEPT] = sum;
        });
    }
    for (int i = 0; DIFFERENCES > 0 && at && i < KEPT; i++) store(at + i * next, kept[i]);
}

#define CHOOSE_BAND(kernel, T)                                                       \
    const Int count = weights.differences;                                             \
    if (weights.lanes) return kernel<4, true, true, T>;                       \
    if (job.copies) return count == 4 ? kernel<4, false, true, T>             \
                                      : kernel<-1, false, true, T>;           \
    switch (count) {                                                                   \
        case 3: return kernel<3, false, false, T>;                            \
        case 4: return kernel<4, false, false, T>;                            \
        case 5: return kernel<5, false, false, T>;                            \
        default: return kernel<-1, false, false, T>;                          \
    }

template <class Out>
auto choose_band(const Job& job, const Weights& weights)
    -> decltype(&band_strip<4, false, true, Out>) {
    CHOOSE_BAND(band_strip, Out)
}

template <class In>
auto choose_band_adjoint(const Job& job, const Weights& weights)
    -> decltype(&band_adjoint_strip<4, false, true, In>) {
    CHOOSE_BAND(band_adjoint_strip, In)
}
#undef CHOOSE_BAND

// What both directions know of a job's points.
struct Points {
    Int actions, held, tail, count;  // where those after the actions begin, and how many are all

    explicit Points(const Job& job)
        : actions(job.head_count),
          held(actions + job.used),
          tail(held + job.held),
          count(tail + job.tail_count) {}
};

inline double coefficient(Address table, Int row, int m) {
    return static_cast<const double*>(table)[row * 4 + m];
}

template <class Out>
class Band : public Tiles<Out> {
public:
    Band(Run& run, Int items)
        : Tiles<Out>(run, items, run.job.rows, 4),
          points_(job_),
          // those of the windows of a tile's rows, clipped ones included
          most_points_(std::min(rows_ / job_.window_steps + 2 + job_.width, points_.count)),
          weights_(job_, split_, rows_),
          spacing_(job_, split_),
          start_(run, split_, job_.start, job_.start_index),
          goal_(run, split_, job_.goal, job_.goal_index),
          reader_(run, split_, job_.actions, most_points_),
          window_(most_points_ * split_.lanes),
          kernel_(choose_band<Out>(job_, weights_)) {}

    static constexpr bool BACKWARDS = false;

    void operator()(const Place& place, Int batch, Int group) {
        const bool starts = job_.start_row && place.row == 0;
        const Int row = starts ? 0 : place.row - job_.start_row, rows = place.rows - starts;
        const Int columns = this->columns(place, group);
        const Int from = rows > 0 ? first_point(job_, row) : 0;
        const Int end = rows > 0 ? first_point(job_, row + rows - 1) + job_.width : 0;
        spacing_.make(place, batch, group);
        place_points(place, batch, group, from, end);
        weights_.make(batch, group, row, rows, from);
        Rows<Out> out[4];
        for (int m = 0; m < 4; m++) out[m] = this->rows_of(m, place);
        if (starts) this->put_state(out, start_.at(place, batch, group), start_.pitch, columns);
        const Windowed windows = weights_.windows(spacing_);
        const Input<double> points = {window_.at, apart(place)};
        each_strip(columns, [&](Int column) { kernel_(windows, points, out, column); });
        for (int m = 0; m < 4; m++) this->finish_rows(m, place, group);
    }

private:
    using Tiles<Out>::job_;
    using Tiles<Out>::split_;
    using Tiles<Out>::rows_;

    Int apart(const Place& place) const { return split_.group > 1 ? split_.lanes : place.columns; }

    // Points [from, end) of a group's trajectories.
    void place_points(const Place& place, Int batch, Int group, Int from, Int end) {
        const Int apart = this->apart(place);
        auto at = [&](Int point) { return window_.at + (point - from) * apart; };
        auto place_actions = [&](Int first, Int last, double* to) {
            if (first >= last) return;
            const Input<double> found = reader_.read_rows(
                place, batch, group, first - points_.actions, last - first, to);
            if (found.at != to)
                interleave(found.at, 1, 0, last - first, found.apart, place.columns, to, apart);
        };
        auto place_state = [&](Address table, Int origin, States& states, Int first, Int last) {
            if (first >= last) return;
            const double* state = states.at(place, batch, group);
            for (Int i = first; i < last; i++)
                each_strip(this->columns(place, group), [&](Int column) {
                    Vec sum = {};
                    for (int m = 0; m < 4; m++)
                        if (const double c = coefficient(table, i - origin, m))
                            sum += c * spacing_.power(m, column) * load(state + m * states.pitch + column);
                    store(at(i) + column, sum);
                });
        };
        place_state(job_.head, 0, start_, from, std::min(end, points_.actions));
        const Int first = std::max(from, points_.actions);
        place_actions(first, std::min(end, points_.held), at(first));
        for (Int i = std::max(from, points_.held); i < std::min(end, points_.tail); i++)
            if (i > from)
                std::memcpy(at(i), at(i - 1), apart * sizeof(double));
            else
                place_actions(points_.held - 1, points_.held, at(i));
        place_state(job_.tail, points_.tail, goal_, std::max(from, points_.tail), end);
    }

    const Points points_;
    const Int most_points_;
    Weights weights_;
    Spacing spacing_;
    States start_, goal_;
    Reader<double> reader_;
    Buffer<double> window_;
    decltype(&band_strip<4, false, true, Out>) const kernel_;
};

// Tiles are of rows of actions: what the rows whose windows reach them give is gathered.
template <class Out, class In>
class BandAdjoint : public Tiles<Out> {
public:
    BandAdjoint(Run& run, Int items)
        : Tiles<Out>(run, items, run.job.horizon, 1),
          points_(job_),
          chunk_(std::min(job_.window_count + 1, split_.tile_rows(job_))),
          most_points_(rows_ + 2 * job_.width + points_.count - job_.used + 2),
          padded_(Split::whole(split_.lanes)),
          weights_(job_, split_, chunk_),
          spacing_(job_, split_),
          upstream_(run, split_, chunk_ + 1),
          gradients_(2 * most_points_ * padded_),
          states_(5 * padded_),
          kernel_(choose_band_adjoint<In>(job_, weights_)) {}

    static constexpr bool BACKWARDS = false;

    void operator()(const Place& place, Int batch, Int group) {
        // the points of these actions, with those before the first and after the last
        const bool first = place.row == 0, any = first || place.row < job_.used;
        const bool last = any && place.row + place.rows >= job_.used;
        const Int action = points_.actions + place.row;
        const Int from = first ? 0 : action, end = last ? points_.count : action + place.rows;
        const Int used = any ? std::min(end, points_.held) - action : 0;
        const Int columns = this->columns(place, group);
        const Rows<Out> out = this->rows_of(0, place);
        if (any) {
            spacing_.make(place, batch, group);
            gather(place, batch, group, from, end);
        }
        if (last) hold(columns);
        for (Int t = 0; t < used; t++)
            each_strip(columns, [&](Int column) {
                store(out.at + t * out.apart + column, total(action + t, column));
            });
        std::memset(static_cast<void*>(out.at + used * out.apart), 0,
                    (place.rows - used) * out.apart * sizeof(Out));
        if (first)
            give_state(job_.head, 0, points_.actions, place, batch, group, job_.start_gradient);
        if (last)
            give_state(job_.tail, points_.tail, points_.count, place, batch, group, job_.goal_gradient);
        this->finish_rows(0, place, group);
    }

private:
    using Tiles<Out>::job_;
    using Tiles<Out>::split_;
    using Tiles<Out>::rows_;

    double* point(Int i) { return gradients_.at + (i - begin_) * padded_; }

    // The gradient of point ``i``: its own, and those of the differences on both of its sides.
    Vec total(Int i, Int column) {
        const double* at = point(i) + column;
        const double* after = at + most_points_ * padded_;
        const Vec sum = load(at) - load(after);
        return i > begin_ ? sum + load(after - padded_) : sum;
    }

    // The gradients of points [from, end) and of the differences between them.
    void gather(const Place& place, Int batch, Int group, Int from, Int end) {
        const Int row = first_row(job_, from - job_.width + 1), last = first_row(job_, end);
        const Int columns = this->columns(place, group);
        begin_ = row < last ? std::min(from, first_point(job_, row)) : from;
        const Int stop = row < last ? first_point(job_, last - 1) + job_.width : end;
        double* differences = gradients_.at + most_points_ * padded_;
        const Int size = (std::max(stop, end) - begin_) * padded_ * Int(sizeof(double));
        std::memset(gradients_.at, 0, size);
        std::memset(differences, 0, size);
        bool lead = job_.start_row && from == 0;
        for (Int t = row; t < last || lead; t += chunk_) {
            const Int count = std::min(last - t, chunk_);
            Input<In> upstream[4];
            for (int m = 0; m < 4; m++) {
                upstream[m] = upstream_.read_rows(m, place, batch, group,
                                                  t + job_.start_row - lead, count + lead);
                for (Int column = 0; lead && column < columns; column++)
                    states_.at[m * padded_ + column] = upstream[m].at[column];
                upstream[m].at += lead * upstream[m].apart;
            }
            lead = false;
            weights_.make(batch, group, t, count, begin_);
            const Windowed windows = weights_.windows(spacing_);
            for (Int column = 0; column < columns; column += W)
                kernel_(windows, upstream, {gradients_.at, padded_}, {differences, padded_}, column);
        }
    }

    // What is held is the last action again.
    void hold(Int columns) {
        for (Int column = 0; job_.used > 0 && column < columns; column += W) {
            double* action = point(points_.held - 1) + column;
            Vec sum = load(action);
            for (Int i = points_.held; i < points_.tail; i++) sum += total(i, column);
            store(action, sum);
        }
    }

    // The gradient of a state, from those of its points and, of the start, from the start row.
    void give_state(Address table, Int from, Int end, const Place& place, Int batch, Int group,
                    Address const* to) {
        const bool row = job_.start_row && to == job_.start_gradient;
        double* sum = states_.at + 4 * padded_;
        for (int m = 0; m < 4; m++) {
            for (Int column = 0; column < this->columns(place, group); column += W) {
                Vec found = row ? load(states_.at + m * padded_ + column) : Vec{};
                for (Int i = from; i < end; i++)
                    if (const double c = coefficient(table, i - from, m))
                        found += c * spacing_.power(m, column) * total(i, column);
                store(sum + column, found);
            }
            write_state(job_, to[m], place, batch, group, sum);
        }
    }

    const Points points_;
    const Int chunk_;  // rows that are gathered at once
    const Int most_points_, padded_;
    Weights weights_;
    Spacing spacing_;
    Upstream<In> upstream_;
    Buffer<double> gradients_, states_;
    Int begin_ = 0;
    decltype(&band_adjoint_strip<4, false, true, In>) const kernel_;
};

}  // namespace LEVEL
