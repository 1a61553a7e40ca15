// The transpose of the band. Included by each level*.cpp after band.hpp.

namespace TRAJCLI_LEVEL {

// The transpose, as a sum over the rows whose windows hold a point, in their order. Points are
// finished from first to last: ``first`` never goes down, so a point's rows are a run of them.
template <class In, class Out>
class BandAdjointRun {
public:
    BandAdjointRun(const trajcli_band_adjoint& job, bool streaming)
        : job_(job),
          stretches_(stretches(job, false)),
          stage_((TILE / job.dofs + 2 * WIDEST) * job.dofs + W, streaming) {
        rows_ = TILE / job.dofs;
        if (rows_ < 1) rows_ = 1;
        sums_.resize((rows_ + 2 * job.width) * job.dofs + AT_ONCE * W);
        for (int m = 0; m < 4; m++)
            if (job.upstream[m]) in_[m].resize((rows_ + 2 * job.width) * job.dofs + AT_ONCE * W);
    }

    void trajectories(std::int64_t begin, std::int64_t end) {
        const std::int64_t points = job_.head + job_.horizon + job_.tail;
        for (std::int64_t b = begin; b < end; b++) {
            stage_.aim(static_cast<Out*>(job_.actions) + b * job_.actions_stride);
            base_ = 0;
            for (const Stretch& stretch : stretches_)
                for (std::int64_t done = 0; done < stretch.count; done += rows_) {
                    std::int64_t left = stretch.count - done, row = stretch.row + done;
                    std::int64_t count = left < rows_ ? left : rows_;
                    finished(b, job_.first[row]);
                    tile(b, row, count);
                    finished(b, job_.first[row] + count - 1);
                }
            finished(b, points);
        }
        stage_.drain(true);
    }

private:
    static constexpr std::int64_t TILE = 1536;
    static constexpr int AT_ONCE = 4;  // vectors

    const trajcli_band_adjoint& job_;
    std::vector<Stretch> stretches_;
    Stage<Out> stage_;
    std::int64_t rows_;
    std::int64_t base_ = 0, live_ = 0;  // the first point in sums_, and how many are not zero
    std::vector<double> sums_, in_[4];

    // Nothing will be added to points before ``point``: write them out.
    void finished(std::int64_t b, std::int64_t point) {
        const std::int64_t D = job_.dofs;
        while (base_ < point) {
            const std::int64_t room = rows_ + job_.width, left = point - base_;
            const std::int64_t count = left < room ? left : room;
            put(b, base_, count, sums_.data());
            const std::int64_t kept = live_ > count ? live_ - count : 0;
            std::memmove(sums_.data(), sums_.data() + count * D, kept * D * sizeof(double));
            if (live_ > kept)
                std::memset(sums_.data() + kept * D, 0, (live_ - kept) * D * sizeof(double));
            live_ = kept, base_ += count;
        }
    }

    void put(std::int64_t b, std::int64_t point, std::int64_t count, const double* from) {
        const std::int64_t D = job_.dofs, last = job_.head + job_.horizon;
        for (; count && point < job_.head; point++, count--, from += D)
            std::memcpy(job_.head_grad + (b * job_.head + point) * D, from, D * sizeof(double));
        const std::int64_t inner = point + count < last ? count : point < last ? last - point : 0;
        if (inner) {
            Out* to = stage_.room();
            for (std::int64_t i = 0; i < inner * D; i++) to[i] = static_cast<Out>(from[i]);
            stage_.added(inner * D);
            point += inner, count -= inner, from += inner * D;
        }
        if (count)
            std::memcpy(job_.tail_grad + (b * job_.tail + point - last) * D, from,
                        count * D * sizeof(double));
    }

    struct Tap {
        double weight;
        const double* from;
    };

    // What a point takes from the rows around it, in the order of the rows: from their weights,
    // those of derivatives applied to differences from the middle of the window.
    int taps(const double* table, Tap* found) const {
        const std::int64_t width = job_.width, middle = width / 2;
        int count = 0;
        for (std::int64_t k = width - 1; k >= 0; k--)
            for (int m = 0; m < 4; m++) {
                double weight = table[m * width + k];
                if (m && k == middle) {
                    weight = 0.0;
                    for (std::int64_t i = 0; i < width; i++)
                        weight -= i == middle ? 0.0 : table[m * width + i];
                }
                if (job_.upstream[m] && weight != 0.0)
                    found[count++] = {weight, in_[m].data() + (width - 1 - k) * job_.dofs};
            }
        return count;
    }

    // Add what ``count`` rows ask of their windows.
    void tile(std::int64_t b, std::int64_t row, std::int64_t count) {
        const std::int64_t D = job_.dofs, width = job_.width;
        // Rows with zeros around them: every point then sums over a whole window of rows.
        const std::int64_t around = (width - 1) * D;
        for (int m = 0; m < 4; m++) {
            if (!job_.upstream[m]) continue;
            const In* from =
                static_cast<const In*>(job_.upstream[m]) + b * job_.upstream_stride + row * D;
            double* to = in_[m].data();
            std::memset(to, 0, around * sizeof(double));
            widen(from, to + around, count * D);
            std::memset(to + around + count * D, 0, (around + AT_ONCE * W) * sizeof(double));
        }
        Tap tap[4 * WIDEST];
        const int n = taps(job_.table + b * job_.table_stride + job_.phase[row] * 4 * width, tap);
        double* sums = sums_.data() + (job_.first[row] - base_) * D;
        const std::int64_t points = (count + width - 1) * D;
        // What is added beyond the last point is zero.
        for (std::int64_t i = 0; i < points; i += AT_ONCE * W) {
            Vec sum[AT_ONCE];
            for (int j = 0; j < AT_ONCE; j++) sum[j] = load(sums + i + j * W);
            for (int k = 0; k < n; k++) {
                const Vec weight = all(tap[k].weight);
                const double* from = tap[k].from + i;
                for (int j = 0; j < AT_ONCE; j++)
                    sum[j] = multiply_add(weight, load(from + j * W), sum[j]);
            }
            for (int j = 0; j < AT_ONCE; j++) store(sums + i + j * W, sum[j]);
        }
        live_ = live_ < count + width - 1 ? count + width - 1 : live_;
    }
};

// The same for floats, a lane per dof: what a point has gathered so far stays in registers while
// the window moves over it. Few dofs share a vector with those of the next trajectories.
template <int WIDTH, bool COPY, class Out>
class BandAdjointLanes {
public:
    BandAdjointLanes(const trajcli_band_adjoint& job, bool streaming)
        : job_(job),
          stretches_(stretches(job, false)) {
        dofs_ = job.dofs;
        group_ = dofs_ <= W / 2 ? W / dofs_ : 1;
        width_ = group_ > 1 ? W : dofs_;
        columns_ = group_ > 1 ? 1 : (dofs_ + W - 1) / W;
        rows_ = TILE / width_ > 16 ? TILE / width_ : 16;
        for (int m = 0; m < 4; m++)
            if (group_ > 1 && job.upstream[m]) in_[m].resize(rows_ * W);
        points_.resize((rows_ + WIDTH) * width_ + W);
        if (group_ > 1) apart_.resize((rows_ + WIDTH) * W);
        sums_.resize(columns_ * WIDTH);
        for (std::int64_t g = 0; g < group_; g++)
            stages_.emplace_back((rows_ + WIDTH) * dofs_ + W, streaming);
    }

    void trajectories(std::int64_t begin, std::int64_t end) {
        for (first_ = begin; first_ < end; first_ += group_) {
            active_ = end - first_ < group_ ? end - first_ : group_;
            for (std::int64_t g = 0; g < active_; g++)
                stages_[g].aim(static_cast<Out*>(job_.actions) + (first_ + g) * job_.actions_stride);
            for (std::int64_t i = 0; i < columns_ * WIDTH; i++) sums_[i] = Vec{};
            base_ = 0;
            for (const Stretch& stretch : stretches_)
                for (std::int64_t done = 0; done < stretch.count; done += rows_) {
                    const std::int64_t left = stretch.count - done, row = stretch.row + done;
                    finish_to(job_.first[row]);
                    tile(row, left < rows_ ? left : rows_);
                }
            finish_to(job_.head + job_.horizon + job_.tail);
        }
        for (auto& stage : stages_) stage.drain(true);
    }

private:
    static constexpr std::int64_t TILE = 1536;

    const trajcli_band_adjoint& job_;
    std::vector<Stretch> stretches_;
    std::int64_t dofs_, group_, width_, columns_, rows_;
    std::int64_t first_ = 0, active_ = 0;  // the trajectories computed together
    std::int64_t base_ = 0;                // the first point in sums_
    std::vector<float> in_[4];
    std::vector<double> points_;
    std::vector<Out> apart_;
    Aligned<Vec> sums_;                    // of WIDTH points, for each column
    std::vector<Stage<Out>> stages_;

    int lanes_of(std::int64_t column) const {
        if (group_ > 1) return active_ * dofs_;
        const std::int64_t left = dofs_ - column * W;
        return left < W ? left : W;
    }

    // Points before ``point`` get nothing more.
    void finish_to(std::int64_t point) {
        while (base_ < point) {
            const std::int64_t left = point - base_, count = left < WIDTH ? left : WIDTH;
            for (std::int64_t c = 0; c < columns_; c++) {
                Vec* sum = sums_.data() + c * WIDTH;
                for (std::int64_t k = 0; k < count; k++) keep(k, c, sum[k]);
                for (std::int64_t k = 0; k < WIDTH; k++) sum[k] = k + count < WIDTH ? sum[k + count] : Vec{};
            }
            put(count);
        }
    }

    void keep(std::int64_t k, std::int64_t column, Vec x) {
        std::memcpy(points_.data() + k * width_ + column * W, &x, lanes_of(column) * sizeof(double));
    }

    void tile(std::int64_t row, std::int64_t count) {
        const double* table = job_.table + first_ * job_.table_stride + job_.phase[row] * 4 * WIDTH;
        const float* in[4];
        bool used[4];
        for (int m = 0; m < 4; m++) {
            used[m] = false;
            for (int k = 0; k < WIDTH; k++) used[m] = used[m] || table[m * WIDTH + k] != 0.0;
            used[m] = used[m] && job_.upstream[m];
            if (used[m]) in[m] = bring(m, row, count);
        }
        // Last columns first: what a vector writes beyond its row is then written over.
        for (std::int64_t c = columns_ - 1; c >= 0; c--) column(c, table, in, used, count);
        put(count - 1);
    }

    const float* bring(int m, std::int64_t row, std::int64_t count) {
        const float* from = static_cast<const float*>(job_.upstream[m]) +
                            first_ * job_.upstream_stride + row * dofs_;
        if (group_ == 1) return from;
        float* to = in_[m].data();
        interleave_rows(from, job_.upstream_stride, to, dofs_, count, active_);
        return to;
    }

    // Weights, of each lane's own trajectory where these differ; those of derivatives are applied
    // to differences from the middle of the window.
    void weights(const double* table, const bool used[4], Vec found[4][WIDTH]) const {
        const std::int64_t kinds = group_ > 1 && job_.table_stride ? active_ : 1;
        for (std::int64_t g = 0; g < kinds; g++, table += job_.table_stride)
            for (int m = 0; m < 4; m++) {
                double rest = 0.0;
                for (int k = 0; k < WIDTH; k++) rest -= k == WIDTH / 2 ? 0.0 : table[m * WIDTH + k];
                for (int k = 0; k < WIDTH; k++) {
                    const double weight = m && k == WIDTH / 2 ? rest : table[m * WIDTH + k];
                    if (g == 0) found[m][k] = all(used[m] ? weight : 0.0);
                    for (std::int64_t l = g * dofs_; g && used[m] && l < (g + 1) * dofs_; l++)
                        found[m][k][l] = weight;
                }
            }
    }

    void column(std::int64_t c, const double* table, const float* const given[4], const bool used[4],
                std::int64_t count) {
        static const float zeros[2 * W] = {};
        Vec weight[4][WIDTH], sum[WIDTH];
        weights(table, used, weight);
        const float* in[4];
        std::int64_t row[4];
        for (int m = 0; m < 4; m++)
            in[m] = used[m] ? given[m] + c * W : zeros, row[m] = used[m] ? width_ : 0;
        const int lanes = lanes_of(c);
        const std::int64_t ahead = group_ > 1 ? 0 : count * dofs_, width = width_;
        double* to = points_.data() + c * W;
        Vec* kept = sums_.data() + c * WIDTH;
        for (int k = 0; k < WIDTH; k++) sum[k] = kept[k];
        for (std::int64_t t = 0; t < count; t++) {
            if (t) {
                store(to + (t - 1) * width, sum[0]);
                for (int k = 0; k + 1 < WIDTH; k++) sum[k] = sum[k + 1];
                sum[WIDTH - 1] = Vec{};
            }
            for (int m = 0; m < 4; m++) {
                const float* from = in[m] + t * row[m];
                __builtin_prefetch(from + ahead, 0, 2);
                const Vec x = load_some(from, lanes);
                if (m == 0 && COPY)
                    sum[WIDTH / 2] = multiply_add(weight[0][WIDTH / 2], x, sum[WIDTH / 2]);
                else
                    for (int k = 0; k < WIDTH; k++) sum[k] = multiply_add(weight[m][k], x, sum[k]);
            }
        }
        for (int k = 0; k < WIDTH; k++) kept[k] = sum[k];
    }

    // ``count`` points from base_ on are complete.
    void put(std::int64_t count) {
        const std::int64_t last = job_.head + job_.horizon;
        const double* from = points_.data();
        for (; count > 0 && base_ < job_.head; from += width_, base_++, count--)
            put_outside(from, job_.head_grad, job_.head, base_);
        const std::int64_t inner = base_ + count < last ? count : base_ < last ? last - base_ : 0;
        if (inner > 0) put_inside(from, inner);
        from += inner * width_, base_ += inner, count -= inner;
        for (; count > 0; from += width_, base_++, count--)
            put_outside(from, job_.tail_grad, job_.tail, base_ - last);
    }

    void put_outside(const double* from, double* to, std::int64_t points, std::int64_t point) {
        for (std::int64_t g = 0; g < active_; g++)
            std::memcpy(to + ((first_ + g) * points + point) * dofs_, from + g * dofs_,
                        dofs_ * sizeof(double));
    }

    void put_inside(const double* from, std::int64_t count) {
        Out* to[W];
        for (std::int64_t g = 0; g < active_; g++) to[g] = stages_[g].room();
        Out* rows = group_ > 1 ? apart_.data() : to[0];
        for (std::int64_t i = 0; i < count * width_; i++) rows[i] = static_cast<Out>(from[i]);
        if (group_ > 1) separate_rows(rows, to, dofs_, count, active_);
        for (std::int64_t g = 0; g < active_; g++) stages_[g].added(count * dofs_);
    }
};

template <int WIDTH, class Out>
void band_adjoint_lanes(const trajcli_band_adjoint& a, bool streaming, std::int64_t begin,
                        std::int64_t end) {
    bool copy = true;  // order 0 takes the middle point alone, wherever it is
    for (std::int64_t t = 0; t < a.rows; t++)
        for (int k = 0; k < WIDTH; k++)
            copy = copy && (k == WIDTH / 2 || a.table[a.phase[t] * 4 * WIDTH + k] == 0.0);
    copy ? BandAdjointLanes<WIDTH, true, Out>(a, streaming).trajectories(begin, end)
         : BandAdjointLanes<WIDTH, false, Out>(a, streaming).trajectories(begin, end);
}

template <class Out>
void band_adjoint_floats(const trajcli_band_adjoint& a, bool streaming, std::int64_t begin,
                         std::int64_t end) {
    switch (a.width) {
        case 1: return band_adjoint_lanes<1, Out>(a, streaming, begin, end);
        case 2: return band_adjoint_lanes<2, Out>(a, streaming, begin, end);
        case 3: return band_adjoint_lanes<3, Out>(a, streaming, begin, end);
        case 4: return band_adjoint_lanes<4, Out>(a, streaming, begin, end);
        case 5: return band_adjoint_lanes<5, Out>(a, streaming, begin, end);
        default: return band_adjoint_lanes<6, Out>(a, streaming, begin, end);
    }
}

void band_adjoint(const trajcli_band_adjoint& a, bool streaming, std::int64_t begin,
                  std::int64_t end) {
    if (a.upstream_type)
        a.actions_type ? BandAdjointRun<double, double>(a, streaming).trajectories(begin, end)
                       : BandAdjointRun<double, float>(a, streaming).trajectories(begin, end);
    else
        a.actions_type ? band_adjoint_floats<double>(a, streaming, begin, end)
                       : band_adjoint_floats<float>(a, streaming, begin, end);
    streams_done();
}

}  // namespace TRAJCLI_LEVEL
