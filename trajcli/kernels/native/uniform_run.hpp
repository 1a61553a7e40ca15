namespace TRAJCLI_LEVEL {

// Vectors in memory: std::vector does not align them.
template <class T>
class Aligned {
public:
    void resize(std::size_t count) {
        bytes_.resize(count * sizeof(T) + alignof(T));
        const std::size_t over = reinterpret_cast<std::uintptr_t>(bytes_.data()) % alignof(T);
        first_ = reinterpret_cast<T*>(bytes_.data() + (alignof(T) - over));
    }
    T* data() { return first_; }
    T& operator[](std::size_t i) { return first_[i]; }

private:
    std::vector<unsigned char> bytes_;
    T* first_ = nullptr;
};

// A run over a range of trajectories. Rows are computed in tiles that fit the first cache and leave
// through stages. Few dofs share a vector with those of the next trajectories.
template <class Kernel, class Out>
class UniformRun {
public:
    explicit UniformRun(const Job& job) : job_(job), powers_(all(job.dt[0])) {
        dofs_ = job.dofs;
        group_ = dofs_ <= W / 2 ? W / dofs_ : 1;
        width_ = group_ > 1 ? W : dofs_;
        columns_ = group_ > 1 ? 1 : (dofs_ + W - 1) / W;
        const std::int64_t most = TILE / width_ > BLOCK ? TILE / width_ : BLOCK;
        const std::int64_t tiles = (job.horizon + most - 1) / most;  // of about equal length
        rows_ = (job.horizon / (tiles > 0 ? tiles : 1) / BLOCK + 1) * BLOCK;
        // trajectories of one tile are finished one after the other: they share a stage
        const bool side_by_side = job.out_stride == (job.horizon + job.copied) * dofs_;
        const std::int64_t ways = side_by_side && job.horizon <= rows_ ? 1 : group_;
        for (int m = 0; m < 4; m++) {
            if (group_ > 1 && job.in[m]) in_[m].resize(rows_ * W);
            if (!job.out[m]) continue;
            for (std::int64_t g = 0; g < ways; g++)
                stages_[m].emplace_back((rows_ + 1) * dofs_ * (group_ / ways) + W, job.streaming);
            if (group_ > 1) shared_[m].resize(rows_ * W);
        }
        if (!HAS_QUIET) room_.resize(3 * rows_ + 6 * (rows_ / BLOCK + 1));
        carried_.resize(columns_);
    }

    void trajectories(std::int64_t begin, std::int64_t end) {
        for (first_ = begin; first_ < end; first_ += group_) {
            active_ = end - first_ < group_ ? end - first_ : group_;
            together();
        }
        for (auto& stages : stages_)
            for (auto& stage : stages) stage.drain(true);
    }

private:
    static constexpr std::int64_t TILE = 2048, NEAR = 16384;

    const Job& job_;
    Powers powers_;
    std::int64_t dofs_, group_, width_, columns_, rows_;
    std::int64_t first_ = 0, active_ = 0;  // the trajectories computed together
    std::vector<float> in_[4];
    std::vector<Out> shared_[4];
    std::vector<Stage<Out>> stages_[4];
    Aligned<Carried<Kernel>> carried_;
    Aligned<Vec> room_;

    void together() {
        if (job_.dt_trajectory_stride) {
            Vec dt = all(1.0);
            for (int l = 0; l < W; l++) dt[l] = job_.dt[trajectory_of(l) * job_.dt_trajectory_stride];
            powers_ = Powers(dt);
        }
        begin();
        const std::int64_t H = job_.horizon, tiles = (H + rows_ - 1) / rows_;
        for (std::int64_t k = 0; k < tiles; k++) {
            std::int64_t first = Kernel::backwards ? H - (k + 1) * rows_ : k * rows_;
            std::int64_t count = rows_;
            if (first < 0) count += first, first = 0;
            if (first + count > H) count = H - first;
            tile(first, count);
        }
        finish();
    }

    std::int64_t trajectory_of(int lane) const {
        const std::int64_t g = group_ > 1 ? lane / dofs_ : 0;
        return first_ + (g < active_ ? g : 0);
    }

    int lanes_of(std::int64_t column) const {
        if (group_ > 1) return active_ * dofs_;
        const std::int64_t left = dofs_ - column * W;
        return left < W ? left : W;
    }

    const float* from(int m, std::int64_t row) const {
        return static_cast<const float*>(job_.in[m]) + first_ * job_.in_stride + row * dofs_;
    }

    Out* place(int m, std::int64_t g, std::int64_t row) const {
        return static_cast<Out*>(job_.out[m]) + (first_ + g) * job_.out_stride + row * dofs_;
    }

    // A column's lanes of an array [B, D].
    Vec gather(const double* from, std::int64_t column, std::int64_t stride) const {
        Vec x{};
        if (!from) return x;
        const int lanes = lanes_of(column);
        if (group_ == 1)
            std::memcpy(&x, from + first_ * stride + column * W, lanes * sizeof(double));
        else
            for (int l = 0; l < lanes; l++) x[l] = from[trajectory_of(l) * stride + l % dofs_];
        return x;
    }

    void scatter(double* to, std::int64_t column, Vec x) const {
        if (to) std::memcpy(to + first_ * dofs_ + column * W, &x, lanes_of(column) * sizeof(double));
    }

    void begin() {
        for (std::int64_t c = 0; c < columns_; c++) {
            Pair x[4];
            for (int m = 0; m < 4; m++)
                x[m] = {gather(job_.begin_hi[m], c, job_.begin_stride),
                        gather(job_.begin_lo[m], c, job_.begin_stride)};
            carried_[c] = Carried<Kernel>{};
            Kernel::begin(carried_[c], x, powers_);
        }
    }

    void finish() {
        for (std::int64_t c = 0; c < columns_; c++) {
            Pair x[4];
            Kernel::end(carried_[c], x, powers_);
            for (int m = 0; m < 4; m++) {
                scatter(job_.end_hi[m], c, job_.end_lo[m] ? x[m].hi : x[m].hi + x[m].lo);
                scatter(job_.end_lo[m], c, x[m].lo);
            }
        }
    }

    void tile(std::int64_t first, std::int64_t count) {
        static const float zeros[2 * W] = {};
        UniformTile tile{{}, {}, 0, 0, count, width_};
        Out* rooms[4] = {};
        for (int m = 0; m < 4; m++) {
            if (!job_.in[m]) {
                tile.in[m] = zeros;
            } else if (group_ > 1) {
                tile.in[m] = in_[m].data(), tile.in_row[m] = W;
                bring(m, first, count);
            } else {
                tile.in[m] = from(m, first), tile.in_row[m] = dofs_;
            }
            if (passes(m)) continue;
            if (job_.out[m] && group_ == 1) {
                Stage<Out>& stage = stages_[m][0];
                stage.aim(place(m, 0, first ? first + job_.copied : 0));
                if (first == 0) copy_state(m, 0, stage);
                rooms[m] = stage.room();
            } else if (job_.out[m]) {
                rooms[m] = shared_[m].data();
            }
        }
        // what the second cache is to hold by then: the next trajectory, or of a long one the next tile
        tile.ahead = group_ > 1                          ? 0
                     : job_.horizon * dofs_ <= NEAR ? job_.in_stride
                     : Kernel::backwards            ? -rows_ * dofs_
                                                    : rows_ * dofs_;
        // Last columns first: what a vector writes beyond its row is then written over.
        for (std::int64_t c = columns_ - 1; c >= 0; c--) {
            UniformTile part = tile;
            Out* out[4] = {};
            for (int m = 0; m < 4; m++) {
                if (job_.in[m]) part.in[m] += c * W;
                if (rooms[m]) out[m] = rooms[m] + c * W;
            }
            part.lanes = lanes_of(c);
            compute_tile<Kernel>(carried_[c], part, powers_, out, room_.data());
        }
        for (int m = 0; m < 4; m++) {
            if (passes(m))
                pass(m, first, count);
            else if (job_.out[m] && group_ == 1)
                stages_[m][0].added(count * dofs_);
            else if (job_.out[m])
                hand_out(m, first, count);
        }
    }

    // The actions are an output too, as they are.
    bool passes(int m) const { return !Kernel::backwards && m == Kernel::ORDER && job_.out[m]; }

    void pass(int m, std::int64_t first, std::int64_t count) {
        if constexpr (sizeof(Out) == sizeof(float)) {
            const bool one = stages_[m].size() == 1;
            for (std::int64_t g = 0; g < active_; g++) {
                Stage<Out>& stage = stages_[m][one ? 0 : g];
                stage.aim(place(m, g, first ? first + job_.copied : 0));
                if (first == 0) copy_state(m, g, stage);
                stage.pass(from(m, first) + g * job_.in_stride, count * dofs_);
            }
        }
    }

    void copy_state(int m, std::int64_t g, Stage<Out>& stage) {
        if (!job_.copied) return;
        const double* state = job_.begin_hi[m] + (first_ + g) * job_.begin_stride;
        for (std::int64_t d = 0; d < dofs_; d++) stage.room()[d] = static_cast<Out>(state[d]);
        stage.added(dofs_);
    }

    // Rows of the trajectories side by side.
    void bring(int m, std::int64_t first, std::int64_t count) {
        const float* source = from(m, first);
        float* to = in_[m].data();
        interleave_rows(source, job_.in_stride, to, dofs_, count, active_);
    }

    // Rows of each trajectory to its place.
    void hand_out(int m, std::int64_t first, std::int64_t count) {
        const bool one = stages_[m].size() == 1;
        const std::int64_t whole = (count + job_.copied) * dofs_;
        Out* to[W];
        for (std::int64_t g = 0; g < active_; g++) {
            Stage<Out>& stage = stages_[m][one ? 0 : g];
            if (g == 0 || !one) stage.aim(place(m, g, first ? first + job_.copied : 0));
            to[g] = stage.room() + (one ? g * whole : 0);
            if (first > 0 || !job_.copied) continue;
            const double* state = job_.begin_hi[m] + (first_ + g) * job_.begin_stride;
            for (std::int64_t d = 0; d < dofs_; d++) to[g][d] = static_cast<Out>(state[d]);
            to[g] += dofs_;
            if (!one) stage.added(dofs_), to[g] = stage.room();
        }
        const Out* rows = shared_[m].data();
        separate_rows(rows, to, dofs_, count, active_);
        if (one) return stages_[m][0].added(active_ * whole);
        for (std::int64_t g = 0; g < active_; g++) stages_[m][g].added(count * dofs_);
    }
};

template <class Out, template <int> class Kernel>
void run_uniform(const Job& job, int order, std::int64_t begin, std::int64_t end) {
    const unsigned before = flags();
    switch (order) {
        case 0: UniformRun<Kernel<0>, Out>(job).trajectories(begin, end); break;
        case 1: UniformRun<Kernel<1>, Out>(job).trajectories(begin, end); break;
        case 2: UniformRun<Kernel<2>, Out>(job).trajectories(begin, end); break;
        default: UniformRun<Kernel<3>, Out>(job).trajectories(begin, end); break;
    }
    set_flags(before);
}

}  // namespace TRAJCLI_LEVEL

namespace TRAJCLI_LEVEL {
void cascade(const trajcli_cascade& a, bool streaming, std::int64_t begin, std::int64_t end) {
    Job job{};
    job.batch = a.batch, job.horizon = a.horizon, job.dofs = a.dofs;
    job.in[a.order] = a.actions;
    job.in_stride = a.actions_stride, job.in_type = a.actions_type;
    job.begin_stride = a.state_stride;
    job.dt = a.dt;
    job.dt_trajectory_stride = a.dt_trajectory_stride, job.dt_step_stride = a.dt_step_stride;
    job.copied = a.start_row;
    job.out_stride = a.out_stride;
    job.streaming = streaming;
    for (int m = 0; m < 4; m++) {
        job.begin_hi[m] = a.state_hi[m], job.begin_lo[m] = a.state_lo[m];
        job.out[m] = a.out[m];
        job.end_hi[m] = a.end_hi[m], job.end_lo[m] = a.end_lo[m];
    }
    const bool rows = job.horizon > 0;  // without any, the general way writes the state
    if (rows && !job.in_type && !a.out_type && !job.dt_step_stride && a.scheme == EULER)
        run_uniform<float, UniformForward>(job, a.order, begin, end);
    else
        a.out_type ? run_as<double, Forward>(job, a.order, a.scheme, begin, end)
                   : run_as<float, Forward>(job, a.order, a.scheme, begin, end);
    streams_done();
}

void cascade_adjoint(const trajcli_cascade_adjoint& a, bool streaming, std::int64_t begin,
                     std::int64_t end) {
    Job job{};
    job.batch = a.batch, job.horizon = a.horizon, job.dofs = a.dofs;
    job.in_stride = a.upstream_stride, job.in_type = a.upstream_type;
    job.begin_stride = a.dofs;
    job.dt = a.dt;
    job.dt_trajectory_stride = a.dt_trajectory_stride, job.dt_step_stride = a.dt_step_stride;
    job.out_stride = a.sources_stride;
    job.streaming = streaming;
    for (int m = 0; m < 4; m++) {
        job.in[m] = a.upstream[m];
        job.begin_hi[m] = a.end[m];
        job.out[m] = a.sources[m];
        job.end_hi[m] = a.state[m];
    }
    bool alone = job.horizon > 0 && !job.in_type && !job.dt_step_stride && a.scheme == EULER;
    for (int m = 0; m < 4; m++)
        alone = alone && (m == a.order) == (a.sources[m] != nullptr) && (m < a.order || !a.end[m]);
    if (alone && a.sources_type)
        run_uniform<double, UniformAdjoint>(job, a.order, begin, end);
    else if (alone)
        run_uniform<float, UniformAdjoint>(job, a.order, begin, end);
    else
        a.sources_type ? run_as<double, Adjoint>(job, a.order, a.scheme, begin, end)
                       : run_as<float, Adjoint>(job, a.order, a.scheme, begin, end);
    streams_done();
}

}  // namespace TRAJCLI_LEVEL
