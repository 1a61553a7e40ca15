// The band and its adjoint: see Band in kernels/program.py. Included by level.hpp after
// cascade.hpp.

namespace LEVEL {

// The windows of a job's rows, one after another: Windows in kernels/program.py.
class Windows {
public:
    Windows(const Job& job, Int row)
        : steps_(job.window_steps),
          shift_(job.window_shift),
          last_(job.window_last),
          row_(row + job.window_offset),
          segment_((row_ >= 0 ? row_ : row_ - steps_ + 1) / steps_) {}

    void advance() {
        if (++row_ == (segment_ + 1) * steps_) segment_++;
    }

    Int first() const { return std::max(std::min(segment_ - shift_, last_), Int(0)); }
    Int kind() const { return row_ - steps_ * first(); }

private:
    const Int steps_, shift_, last_;
    Int row_, segment_;
};

inline Int first_point(const Job& job, Int row) { return Windows(job, row).first(); }

// The first row whose window begins at ``point`` or later.
inline Int first_row(const Job& job, Int point) {
    const Int row = (point + job.window_shift) * job.window_steps - job.window_offset;
    return point <= 0                  ? 0
           : point > job.window_last   ? job.window_count
                                       : std::clamp(row, Int(0), job.window_count);
}

// The gaps between points of a tile whose steps differ and, in four more arrays, one over the
// lengths of one to four of them from there on.
class Gaps {
public:
    struct View {
        const double* at;
        Int pitch, next;  // from one gap and from one array to the next
    };

    // count: the most that are read at once.
    Gaps(Run& run, const Tiling& tiling, Int count)
        : job_(run.job),
          next_(job_.table ? 0 : (count + 4) * tiling.lanes + W),
          steps_(run, tiling, job_.table ? 0 : count),
          values_(5 * next_) {}

    // Those after points [from, from + count).
    View make(const Tile& tile, Int from, Int count) {
        const View result = {values_.at, tile.lanes, next_};
        if (steps_.shared && from == from_ && count == count_ && tile.columns == columns_)
            return result;
        from_ = from, count_ = count, columns_ = tile.columns;
        auto step = [&](Int point) {
            return std::clamp(point - std::max(job_.head_count - 1, Int(0)), Int(0), job_.steps - 1);
        };
        const Int first = step(from), pitch = tile.lanes;
        const Rows<const double> dt =
            steps_.rows(tile, first, step(from + count - 1) - first + 1);
        for (Int i = 0; i < count; i++)
            std::memcpy(values_.at + i * pitch, dt.at + (step(from + i) - first) * dt.pitch,
                        pitch * sizeof(double));
        for (Int i = 0; i < count * pitch; i += W) {
            Vec length = {};
            for (Int k = 0; k < 4; k++) {
                length += load(values_.at + i + k * pitch);
                store(values_.at + (k + 1) * next_ + i, 1.0 / length);
            }
        }
        return result;
    }

private:
    const Job& job_;
    const Int next_;
    Steps steps_;
    Int from_ = -1, count_ = -1, columns_ = -1;  // of what was made last
    Buffer<double> values_;
};

// The polynomial through five points in Newton's form, which takes differences and subtracts no
// times: its derivatives at one of the points, by Horner's rule.
class Newton {
public:
    Newton(Gaps::View gaps, Int first, Int base, Int column)
        : gaps_(gaps), at_(gaps.at + first * gaps.pitch + column) {
        for (int i = 0; i < 4; i++)
            if (i >= base) since_[i + 1] = since_[i] - load(at_ + i * gaps.pitch);
        for (int i = 3; i >= 0; i--)
            if (i < base) since_[i] = since_[i + 1] + load(at_ + i * gaps.pitch);
    }

    // The derivatives, from the four differences, which it overwrites.
    void derive(Vec* change, Vec* derivatives) const {
        for (int j = 0; j < 4; j++) change[j] *= inverse(0, j);
        for (int k = 1; k < 4; k++)  // to the divided difference of points 0 to k + 1 in place k
            for (int j = 3; j >= k; j--) change[j] = (change[j] - change[j - 1]) * inverse(k, j - k);
        Vec sum = change[3], first = {}, second = {}, third = {};
        for (int k = 3; k >= 0; k--) {
            third = third * since_[k] + second;
            second = second * since_[k] + first;
            first = first * since_[k] + sum;
            if (k > 0) sum = sum * since_[k] + change[k - 1];
        }
        derivatives[0] = first, derivatives[1] = 2.0 * second, derivatives[2] = 6.0 * third;
    }

    // Its transpose, step by step from its end.
    void pull(const Vec* derivatives, Vec* change) const {
        Vec sum = {}, first = derivatives[0], second = 2.0 * derivatives[1], third = 6.0 * derivatives[2];
        for (int k = 0; k < 4; k++) {
            if (k > 0) change[k - 1] = sum;
            sum = sum * since_[k] + first;
            first = first * since_[k] + second;
            second = second * since_[k] + third;
            third = third * since_[k];
        }
        change[3] = sum;
        for (int k = 3; k > 0; k--)
            for (int j = k; j < 4; j++) {
                change[j] *= inverse(k, j - k);
                change[j - 1] -= change[j];
            }
        for (int j = 0; j < 4; j++) change[j] *= inverse(0, j);
    }

private:
    // One over the length of the k + 1 gaps from j on.
    Vec inverse(int k, int j) const { return load(at_ + (k + 1) * gaps_.next + j * gaps_.pitch); }

    const Gaps::View gaps_;
    const double* at_;
    Vec since_[5] = {};  // the time from each point to the base
};

// One over the powers of the spacing, in the derivatives of points one unit apart.
inline void make_scale(const Job& job, const double* dt, Vec* scale) {
    scale[0] = all(1.0);
    const Vec spacing = static_cast<double>(job.spacing) * load(dt);
    for (int m = 1; m < 4; m++) scale[m] = scale[m - 1] * spacing;
    for (int m = 1; m < 4; m++) scale[m] = 1.0 / scale[m];
}

// What a kind of row takes: the point its position is based on, and the differences that have
// weights. The others are left out, so that no NaN comes through a weight of zero.
struct Kind {
    Int base, begin, end;
};

// A strip of rows. points: those from ``from`` on.
template <class Out>
void band_strip(const Job& job, Int row, Int rows, Rows<const double> points, Int from,
                const double* dt, const Rows<Out>* out, Int column) {
    const Int count = job.width - 1, next = points.pitch, pitch = out[0].pitch;
    const bool copies = job.copies;
    const Kind* kinds = static_cast<const Kind*>(job.kinds);
    const double* table = static_cast<const double*>(job.table);
    Out* to[4];
    for (int m = 0; m < 4; m++) to[m] = out[m].at + column;
    Vec scale[4];
    make_scale(job, dt + column, scale);
    Windows windows(job, row);
    for (Int t = 0; t < rows; t++, windows.advance()) {
        const Int k = windows.kind();
        const Kind kind = kinds[k];
        const double* point = points.at + (windows.first() - from) * next + column;
        const double* weights = table + (k * count + kind.begin) * 4;
        const double* at = point + kind.begin * next;
        Vec sum[4] = {}, here = load(at);
        for (Int i = kind.begin; i < kind.end; i++, weights += 4) {
            const Vec after = load(at += next), change = after - here;
            if (!copies) sum[0] += weights[0] * change;
            for (int m = 1; m < 4; m++) sum[m] += weights[m] * change;
            here = after;
        }
        const Vec position = load(point + kind.base * next);
        store(to[0] + t * pitch, copies ? position : position + sum[0]);
        for (int m = 1; m < 4; m++) store(to[m] + t * pitch, sum[m] * scale[m]);
    }
}

// The same where steps differ.
template <class Out>
void uneven_band_strip(const Job& job, Int row, Int rows, Rows<const double> points, Int from,
                       Gaps::View gaps, const Rows<Out>* out, Int column) {
    const Int next = points.pitch, pitch = out[0].pitch;
    const Kind* kinds = static_cast<const Kind*>(job.kinds);
    Windows windows(job, row);
    for (Int t = 0; t < rows; t++, windows.advance()) {
        const Int first = windows.first() - from, base = kinds[windows.kind()].base;
        const double* point = points.at + first * next + column;
        Vec change[4], derivatives[3];
        for (int i = 0; i < 4; i++) change[i] = load(point + (i + 1) * next) - load(point + i * next);
        Newton(gaps, first, base, column).derive(change, derivatives);
        store(out[0].at + t * pitch + column, load(point + base * next));
        for (int m = 1; m < 4; m++) store(out[m].at + t * pitch + column, derivatives[m - 1]);
    }
}

// Adds to the gradient of a point.
inline void add(double* point, Vec gradient) { store(point, load(point) + gradient); }

// Their transposes: they add to the gradients of points, whose rows are whole vectors.
template <class In>
void band_adjoint_strip(const Job& job, Int row, Int rows, const Rows<const In>* upstream,
                        Rows<double> points, Int from, const double* dt, Int column) {
    const Int count = job.width - 1, next = points.pitch;
    const bool copies = job.copies;
    const Kind* kinds = static_cast<const Kind*>(job.kinds);
    const double* table = static_cast<const double*>(job.table);
    const Rows<const In> source[4] = {upstream[0], upstream[1], upstream[2], upstream[3]};
    Vec scale[4];
    make_scale(job, dt + column, scale);
    Windows windows(job, row);
    for (Int t = 0; t < rows; t++, windows.advance()) {
        const Int k = windows.kind();
        const Kind kind = kinds[k];
        double* point = points.at + (windows.first() - from) * next + column;
        const double* weights = table + (k * count + kind.begin) * 4;
        double* at = point + kind.begin * next;
        Vec g[4], before = {};
        for (int m = 0; m < 4; m++)
            g[m] = load(source[m].at + t * source[m].pitch + column) * scale[m];
        for (Int i = kind.begin; i < kind.end; i++, weights += 4, at += next) {
            Vec sum = weights[1] * g[1] + weights[2] * g[2] + weights[3] * g[3];
            if (!copies) sum += weights[0] * g[0];
            add(at, before - sum);
            before = sum;
        }
        add(at, before);
        add(point + kind.base * next, g[0]);
    }
}

template <class In>
void uneven_band_adjoint_strip(const Job& job, Int row, Int rows, const Rows<const In>* upstream,
                               Rows<double> points, Int from, Gaps::View gaps, Int column) {
    const Int next = points.pitch;
    const Kind* kinds = static_cast<const Kind*>(job.kinds);
    Windows windows(job, row);
    for (Int t = 0; t < rows; t++, windows.advance()) {
        const Int first = windows.first() - from, base = kinds[windows.kind()].base;
        double* point = points.at + first * next + column;
        Vec g[4], change[4];
        for (int m = 0; m < 4; m++) g[m] = load(upstream[m].at + t * upstream[m].pitch + column);
        Newton(gaps, first, base, column).pull(g + 1, change);
        add(point, -change[0]);
        for (int i = 1; i < 4; i++) add(point + i * next, change[i - 1] - change[i]);
        add(point + 4 * next, change[3]);
        add(point + base * next, g[0]);
    }
}

// What both directions know of a job's points.
struct Points {
    Int actions, held, tail, count;  // where those after the actions begin, and how many are all

    explicit Points(const Job& job)
        : actions(job.head_count),
          held(actions + job.used),
          tail(held + job.held),
          count(tail + job.tail_count) {}
};

// Calls ``use`` with what a point of the head or the tail takes of each part of a state.
template <class Use>
void for_parts(const Job& job, Address table, Int point, const double* dt, Use use) {
    const Vec spacing = static_cast<double>(job.spacing) * load(dt);
    Vec power = all(1.0);
    for (int m = 0; m < 4; m++, power *= spacing)
        if (const double c = static_cast<const double*>(table)[point * 4 + m]) use(m, c * power);
}

template <class Out>
class Band {
public:
    static constexpr bool BACKWARDS = false;

    Band(Run& run, const Tiling& tiling)
        : writer(run, tiling, 4, BACKWARDS),
          job_(run.job),
          points_(job_),
          // those of the windows of a tile's rows, clipped ones included
          most_points_(std::min(tiling.rows / job_.window_steps + 2 + job_.width, points_.count)),
          gaps_(run, tiling, most_points_),
          first_step_(run, tiling, 1),
          start_(run, tiling, job_.start, job_.start_index),
          goal_(run, tiling, job_.goal, job_.goal_index),
          actions_(run, tiling, job_.actions, most_points_),
          window_(most_points_ * tiling.lanes) {}

    void operator()(const Tile& tile) {
        const bool starts = job_.start_row && tile.row == 0;
        const Int row = starts ? 0 : tile.row - job_.start_row, rows = tile.rows - starts;
        const Int from = rows > 0 ? first_point(job_, row) : 0;
        const Int end = rows > 0 ? first_point(job_, row + rows - 1) + job_.width : 0;
        const double* dt = first_step_.rows(tile, 0, 1).at;
        place_points(tile, from, end, dt);
        Gaps::View gaps = {};
        if (!job_.table && rows > 0) gaps = gaps_.make(tile, from, end - from - 1);
        const Rows<const double> points = {window_.at, tile.lanes};
        const double* state = starts ? start_.at(tile) : nullptr;
        Rows<Out> first[4], out[4];
        writer.place(tile, first);
        for (int m = 0; m < 4; m++) out[m] = {first[m].at + starts * first[m].pitch, first[m].pitch};
        for_strips(tile.lanes, [&](Int column) {
            for (int m = 0; starts && m < 4; m++)
                store(first[m].at + column, load(state + m * start_.pitch + column));
            if (job_.table)
                band_strip(job_, row, rows, points, from, dt, out, column);
            else
                uneven_band_strip(job_, row, rows, points, from, gaps, out, column);
        });
        writer.write(tile);
    }

    Writer<Out> writer;

private:
    // Points [from, end) of a tile's trajectories.
    void place_points(const Tile& tile, Int from, Int end, const double* dt) {
        auto at = [&](Int point) { return window_.at + (point - from) * tile.lanes; };
        auto place_state = [&](Address table, Int origin, States& states, Int first, Int last) {
            const double* state = first < last ? states.at(tile) : nullptr;
            for (Int i = first; i < last; i++)
                for_strips(tile.lanes, [&](Int column) {
                    Vec sum = {};
                    for_parts(job_, table, i - origin, dt + column, [&](int m, Vec factor) {
                        sum += factor * load(state + m * states.pitch + column);
                    });
                    store(at(i) + column, sum);
                });
        };
        auto place_actions = [&](Int first, Int last) {
            if (first < last)
                actions_.copy(tile, std::min(first, points_.held - 1) - points_.actions,
                              last - first, at(first));
        };
        place_state(job_.head, 0, start_, from, std::min(end, points_.actions));
        place_actions(std::max(from, points_.actions), std::min(end, points_.held));
        for (Int i = std::max(from, points_.held); i < std::min(end, points_.tail); i++)
            place_actions(i, i + 1);
        place_state(job_.tail, points_.tail, goal_, std::max(from, points_.tail), end);
    }

    const Job& job_;
    const Points points_;
    const Int most_points_;
    Gaps gaps_;
    Steps first_step_;
    States start_, goal_;
    Reader<double> actions_;
    Buffer<double> window_;
};

// Tiles are of rows of actions: what the rows whose windows reach them give is gathered.
template <class Out, class In>
class BandAdjoint {
public:
    static constexpr bool BACKWARDS = false;

    BandAdjoint(Run& run, const Tiling& tiling)
        : writer(run, tiling, 1, BACKWARDS),
          job_(run.job),
          points_(job_),
          chunk_(std::min(std::max(job_.window_count, Int(1)), tiling.rows_per_tile(job_))),
          most_points_(tiling.rows + 2 * job_.width + points_.count - job_.used + 2),
          pitch_(whole(tiling.lanes)),
          gaps_(run, tiling, chunk_ / job_.window_steps + 2 + job_.width),
          first_step_(run, tiling, 1),
          upstream_{{run, tiling, job_.upstream[0], chunk_},
                    {run, tiling, job_.upstream[1], chunk_},
                    {run, tiling, job_.upstream[2], chunk_},
                    {run, tiling, job_.upstream[3], chunk_}},
          gradients_(most_points_ * pitch_),
          part_(pitch_) {}

    void operator()(const Tile& tile) {
        // the points of these actions, with those before the first and after the last
        const bool first = tile.row == 0, any = first || tile.row < job_.used;
        const bool last = any && tile.row + tile.rows >= job_.used;
        const Int action = points_.actions + tile.row;
        const Int from = first ? 0 : action, end = last ? points_.count : action + tile.rows;
        const Int used = any ? std::min(end, points_.held) - action : 0;
        if (any) gather(tile, from, end);
        if (last) hold(tile);
        Rows<Out> out;
        writer.place(tile, &out);
        for (Int t = 0; t < used; t++)
            for_strips(tile.lanes, [&](Int column) {
                store(out.at + t * out.pitch + column, load(point(action + t) + column));
            });
        for (Int t = used; t < tile.rows; t++)
            std::memset(static_cast<void*>(out.at + t * out.pitch), 0, tile.lanes * sizeof(Out));
        if (first) pull_state(tile, job_.head, 0, job_.head_count, job_.start_gradient, job_.start_row);
        if (last) pull_state(tile, job_.tail, points_.tail, job_.tail_count, job_.goal_gradient, false);
        writer.write(tile);
    }

    Writer<Out> writer;

private:
    double* point(Int i) { return gradients_.at + (i - begin_) * pitch_; }

    // The gradients of points [from, end).
    void gather(const Tile& tile, Int from, Int end) {
        const Int row = first_row(job_, from - job_.width + 1), last = first_row(job_, end);
        begin_ = row < last ? std::min(from, first_point(job_, row)) : from;
        const Int stop = row < last ? first_point(job_, last - 1) + job_.width : end;
        std::memset(gradients_.at, 0, (std::max(stop, end) - begin_) * pitch_ * sizeof(double));
        const double* dt = first_step_.rows(tile, 0, 1).at;
        for (Int t = row; t < last; t += chunk_) {
            const Int count = std::min(last - t, chunk_), origin = first_point(job_, t);
            Rows<const In> upstream[4];
            for (int m = 0; m < 4; m++) upstream[m] = upstream_[m].rows(tile, t + job_.start_row, count);
            Gaps::View gaps = {};
            if (!job_.table)
                gaps = gaps_.make(tile, origin,
                                  first_point(job_, t + count - 1) + job_.width - 1 - origin);
            const Rows<double> points = {point(origin), pitch_};
            for_strips(tile.lanes, [&](Int column) {
                if (job_.table)
                    band_adjoint_strip(job_, t, count, upstream, points, origin, dt, column);
                else
                    uneven_band_adjoint_strip(job_, t, count, upstream, points, origin, gaps, column);
            });
        }
    }

    // What is held is the last action again.
    void hold(const Tile& tile) {
        for (Int i = points_.held; i < points_.tail; i++)
            for_strips(tile.lanes, [&](Int column) {
                add(point(points_.held - 1) + column, load(point(i) + column));
            });
    }

    // The gradient of a state, from those of its points and, of the start, from the start row.
    void pull_state(const Tile& tile, Address table, Int from, Int count, Address const* to,
                    bool start_row) {
        const double* dt = first_step_.rows(tile, 0, 1).at;
        for (int m = 0; m < 4; m++) {
            if (!to[m]) continue;
            const Rows<const In> row = upstream_[m].rows(tile, 0, start_row);
            for_strips(tile.lanes, [&](Int column) {
                Vec sum = start_row ? load(row.at + column) : Vec{};
                for (Int i = 0; i < count; i++)
                    for_parts(job_, table, i, dt + column, [&](int part, Vec factor) {
                        if (part == m) sum += factor * load(point(from + i) + column);
                    });
                store(part_.at + column, sum);
            });
            write_state(job_, to[m], tile, part_.at);
        }
    }

    const Job& job_;
    const Points points_;
    const Int chunk_;  // rows that are gathered at once
    const Int most_points_, pitch_;
    Gaps gaps_;
    Steps first_step_;
    Reader<In> upstream_[4];
    Buffer<double> gradients_, part_;
    Int begin_ = 0;
};

}  // namespace LEVEL
