// The band for few dofs: trajectories side by side in one vector, slid over together.
// Included by each level*.cpp after slide.hpp.

namespace TRAJCLI_LEVEL {

#if defined(TRAJCLI_AVX512)
template <int WIDTH>
class BandGroups {
public:
    // Short trajectories of few dofs, one after the other in the outputs, with the same weights in
    // all rows.
    static bool suit(const trajcli_band& job) {
        bool same = job.unit_whole && !job.scale_stride && job.width == WIDTH;
        for (std::int64_t t = 1; same && t < job.rows; t++)
            same = job.phase[t] == job.phase[0] && job.first[t] == job.first[t - 1] + 1;
        return same && job.dofs <= W / 2 && job.rows >= WIDTH && job.rows <= MOST &&
               job.out_stride == (job.rows + (job.start[0] != nullptr)) * job.dofs;
    }

    BandGroups(const trajcli_band& job, bool streaming)
        : job_(job),
          group_(W / job.dofs),
          copied_(job.start[0] != nullptr),
          stencil_(job.unit + job.phase[0] * 4 * WIDTH, job.scale) {
        for (int m = 0; m < 4; m++) {
            if (!job.out[m]) continue;
            stages_[m].emplace_back((job.rows + 1) * W, streaming);
            shared_[m].resize((job.rows + 2) * W);
        }
        before_.resize(job.head * W), after_.resize(job.tail * W);
        inner_.resize((job.rows + WIDTH) * W);
    }

    std::int64_t size() const { return group_; }

    // Trajectories b.. together; false, and nothing written, where that was not exact.
    bool compute(std::int64_t b) {
        const std::int64_t middle = job_.first[0] + WIDTH / 2 - job_.head;
        const bool passes = stencil_.copy && middle >= 0 && middle + job_.rows <= job_.horizon;
        if ((!stencil_.full && !stencil_.all_but_last) || (stencil_.copy && !passes)) return false;
        Rows rows{{}, W, W, true};
        for (int m = passes; m < 4; m++)
            if (job_.out[m]) rows.out[m] = shared_[m].data();
        if (!slide_exactly<WIDTH>(stencil_, bring(b), rows, W)) return false;
        for (int m = 0; m < 4; m++)
            if (job_.out[m]) hand_out(m, b, m == 0 && passes ? middle : -1);
        return true;
    }

    void finish() {
        for (auto& stages : stages_)
            for (auto& stage : stages) stage.drain(true);
    }

private:
    static constexpr std::int64_t MOST = 256;  // rows

    const trajcli_band& job_;
    std::int64_t group_, copied_;
    Evenly<WIDTH> stencil_;
    std::vector<Stage<float>> stages_[4];
    std::vector<float> shared_[4], inner_;
    std::vector<double> before_, after_;
    bool brought_ = false;  // what lies before is there, where it is the same for all

    const float* actions(std::int64_t b) const {
        return static_cast<const float*>(job_.actions) + b * job_.actions_stride;
    }

    Points bring(std::int64_t b) {
        const std::int64_t head = job_.head, last = head + job_.horizon;
        const std::int64_t begin = job_.first[0] + stencil_.offset;
        const std::int64_t width = WIDTH > 4 && !stencil_.full ? WIDTH - 1 : WIDTH;
        const std::int64_t end = begin + job_.rows + width - 1;
        const std::int64_t inner = begin > head ? begin : head, after = begin > last ? begin : last;
        Points found{};
        found.before = before_.data(), found.inner = inner_.data(), found.after = after_.data();
        found.before_row = found.inner_row = found.after_row = W;
        found.before_count = begin < head ? (end < head ? end : head) - begin : 0;
        found.inner_count = inner < last && end > inner ? (end < last ? end : last) - inner : 0;
        found.after_count = end > after ? end - after : 0;
        if (job_.head_stride || !brought_)
            outside(before_.data(), job_.head_hi, b * job_.head_stride + begin * job_.head_row,
                    found.before_count, job_.head_stride, job_.head_row);
        brought_ = true;
        interleave_rows(actions(b) + (inner - head) * job_.dofs, job_.actions_stride, inner_.data(),
                        job_.dofs, found.inner_count, group_);
        outside(after_.data(), job_.tail_hi, b * job_.tail_stride + (after - last) * job_.tail_row,
                found.after_count, job_.tail_stride, job_.tail_row);
        return found;
    }

    void outside(double* to, const double* from, std::int64_t at, std::int64_t count,
                 std::int64_t stride, std::int64_t row) const {
        for (std::int64_t t = 0; t < count; t++)
            if (t && !row)  // one point, held
                std::memcpy(to + t * W, to, W * sizeof(double));
            else
                for (std::int64_t g = 0; g < group_; g++)
                    for (std::int64_t d = 0; d < job_.dofs; d++)
                        to[t * W + g * job_.dofs + d] = from[at + g * stride + t * row + d];
    }

    // Rows of each trajectory to its place; of order 0 perhaps as they came, from action ``as_is``.
    void hand_out(int m, std::int64_t b, std::int64_t as_is) {
        const std::int64_t D = job_.dofs, whole = (job_.rows + copied_) * D;
        Stage<float>& stage = stages_[m][0];
        stage.aim(static_cast<float*>(job_.out[m]) + b * job_.out_stride);
        float* to[W];
        for (std::int64_t g = 0; g < group_; g++) {
            to[g] = stage.room() + (as_is < 0 ? g * whole : 0);
            for (std::int64_t d = 0; copied_ && d < D; d++)
                to[g][d] = static_cast<float>(job_.start[m][(b + g) * job_.start_stride + d]);
            to[g] += copied_ * D;
            if (as_is < 0) continue;
            stage.added(copied_ * D);
            stage.pass(actions(b + g) + as_is * D, job_.rows * D);
        }
        if (as_is >= 0) return;
        separate_rows(shared_[m].data(), to, D, job_.rows, group_);
        stage.added(group_ * whole);
    }
};
#endif

}  // namespace TRAJCLI_LEVEL
