// The smoothing spline and its adjoint: see Smoother in kernels/program.py. Included by level.hpp
// after tile.hpp. A lane is a dof of a trajectory, beside those of the next one where dofs are few.

namespace LEVEL {

typedef decltype(Vec{} > Vec{}) Mask;

inline bool any(Mask mask) {
    bool some = false;
    for (Int i = 0; i < W; i++) some |= mask[i] != 0;
    return some;
}

inline Vec square_root(Vec v) {
    for (Int i = 0; i < W; i++) v[i] = __builtin_sqrt(v[i]);
    return v;
}

// Makes all but the last column upper triangular, in place, by Householder's reflections.
template <int N>
inline void triangulate(Vec (&a)[N][N]) {
    for (int k = 0; k < N - 1; k++) {
        Vec below = {};
        for (int i = k + 1; i < N; i++) below += a[i][k] * a[i][k];
        const Vec x = a[k][k], norm = square_root(x * x + below), to = x > 0.0 ? -norm : norm;
        const Vec v = x - to, product = to * v, scale = product != 0.0 ? 1.0 / product : Vec{};
        for (int j = k + 1; j < N; j++) {
            Vec dot = v * a[k][j];
            for (int i = k + 1; i < N; i++) dot += a[i][k] * a[i][j];
            dot *= scale;
            a[k][j] += v * dot;
            for (int i = k + 1; i < N; i++) a[i][j] += a[i][k] * dot;
        }
        a[k][k] = to;
    }
}

// The lanes of a vector through all of their rows, in units. M: the order that is penalised.
template <int M>
class Spline {
    static constexpr int N = 2 * M + 1;

public:
    explicit Spline(const Job& job)
        : job_(job),
          count_(job.used),
          uneven_(job.dt.stride[1] != 0),
          values_(count_ * W),
          weights_(count_ * W),
          steps_(uneven_ ? count_ * W : 0),
          factors_(count_ * M * N * W) {}

    // Takes lanes from ``first`` on, of all dofs of all trajectories; past the end the last repeats.
    // Returns false where an action that has weight is not finite.
    bool place(Int first, Int lanes) {
        bool finite = true;
        for (Int i = 0; i < W; i++) {
            const Int lane = first + std::min(i, lanes - 1);
            trajectory_[i] = lane / job_.dofs, dof_[i] = lane % job_.dofs;
            unit_[i] = static_cast<const double*>(job_.unit)[job_.dt.stride[0] ? trajectory_[i] : 0];
            root_[i] = __builtin_sqrt(static_cast<const double*>(job_.stiffness)[lane]);
            read(job_.weights, i, count_, weights_.at);
            read(job_.dt, i, uneven_ ? count_ - 1 : 0, steps_.at);
            if (job_.adjoint != 1) finite &= place_values(i);
        }
        lanes_ = lanes;
        return finite;
    }

    // out: outputs of the trajectories from ``batch`` on.
    template <class Out>
    void write_rows(Out* const* out, Int batch) {
        eliminate([](Int, Vec*) {});
        substitute<false>([&](Int t, const Vec* z, const Vec* e, Vec) {
            Vec x[4] = {z[0] + shift_, z[1], z[2], M > 3 ? z[M - 1] : Vec{}}, power = all(1.0);
            for (int k = 0; M == 3 && k < M; k++) x[3] += control(t, k) * e[k];
            for (int m = 0; m < 4; m++, power *= unit_) write(out[m], batch, t, x[m] / power);
        });
    }

    template <class Out>
    void write_sums(Int first, Out* residuals, Int batch) {
        Vec squares = {}, leverages = {};
        eliminate([](Int, Vec*) {});
        substitute<true>([&](Int t, const Vec* z, const Vec*, Vec leverage) {
            const Vec residual = load(values_.at + t * W) - z[0];
            squares += weight(t) * residual * residual, leverages += leverage;
            write(residuals, batch, t, residual);
        });
        for (int k = 0; k < 2; k++)
            std::memcpy(static_cast<double*>(job_.start_gradient[k]) + first,
                        k ? &leverages : &squares, bytes<double>(lanes_));
    }

    // Computes w H^-1 g, H the matrix of the normal equations: first to last the gradient by each
    // step's noise, with D^-1 D^-T in place of D^-1 c; then the states as in the forward pass.
    template <class Out>
    void write_gradient(Out* out, Int batch) {
        Vec state[M] = {}, noise[M];
        eliminate([&](Int t, Vec* row) {
            Vec power = all(1.0), jerk = {};
            for (int m = 0; m < 4; m++, power *= unit_)
                (m < M ? state[m % M] : jerk) += read_upstream(m, t) / power;
            const Mask far = is_far(t);
            Vec ahead[M];
            for (int k = 0; k < M; k++) ahead[k] = control(t, k) * jerk;
            shift<true>(back(t, far), state);
            for (int k = 0; k < M; k++) {
                noise[k] = far ? state[k] : ahead[k] - state[k];
                state[k] = far ? ahead[k] : state[k];
            }
            if (any(far)) shift<true>(step(t), ahead);
            for (int k = 0; any(far) && k < M; k++) noise[k] -= far ? ahead[k] : Vec{};
            for (int j = 0; j < M; j++) row[j * N + 2 * M] = Vec{};
            for (int j = 0; j < M; j++) {
                Vec c = {};
                for (int k = 0; k <= j; k++) c += row[k * N + j] * noise[k];
                for (int k = 0; k <= j; k++) row[k * N + 2 * M] += row[k * N + j] * c;
                for (int k = 0; k < M; k++) state[j] -= row[k * N + M + j] * noise[k];
            }
        });
        substitute<false>([&](Int t, const Vec* z, const Vec*, Vec) {
            write(out, batch, t, weight(t) * z[0]);
        });
    }

private:
    // Eliminates, first to last, the noise e of each step: the difference of the next state z from
    // Taylor's polynomial of the one before. The rows that penalise e, the information on the state
    // and the measured value become D e + O z = c and the information on z. ``use`` gets the step
    // and D^-1 [I O c]. The last step leads to z = 0 by e alone. Over a step that is far, e is the
    // small difference of large numbers: the state before it, x, is eliminated in its place.
    template <class Use>
    void eliminate(Use use) {
        const double* penalty = static_cast<const double*>(job_.table);
        Vec known[M + 1][M + 1] = {}, a[N][N], d[M];
        for (Int t = 0; t < count_; t++) {
            std::memset(a, 0, sizeof a);
            known[M][0] = square_root(weight(t));
            if (job_.adjoint != 1) known[M][M] = known[M][0] * load(values_.at + t * W);
            Vec scale = t + 1 < count_ ? root_ / square_root(step(t)) : Vec{};
            for (int k = M - 1; k >= 0; k--, scale = t + 1 < count_ ? scale / step(t) : Vec{})
                for (int j = k; j < M; j++) a[j][k] = penalty[j * M + k] * scale;
            const Mask far = is_far(t);
            for (int j = 0; j <= M; j++) {
                shift<true>(back(t, far), known[j]);
                for (int k = 0; k < M; k++) a[M + j][k] = -known[j][k], a[M + j][M + k] = known[j][k];
                a[M + j][2 * M] = known[j][M];
            }
            if (any(far)) {
                Vec b[N][N] = {};  // the largest rows first
                for (int j = 0; j <= M; j++) {
                    for (int k = 0; k < M; k++) b[j][k] = known[j][k];
                    b[j][2 * M] = known[j][M];
                }
                for (int j = 0; j < M; j++) {
                    for (int k = 0; k < M; k++) b[M + 1 + j][k] = -a[j][k], b[M + 1 + j][M + k] = a[j][k];
                    shift<true>(step(t), b[M + 1 + j]);
                }
                for (int j = 0; j < N; j++)
                    for (int k = 0; k < N; k++) a[j][k] = far ? b[j][k] : a[j][k];
            }
            triangulate(a);
            for (int j = M - 1; j >= 0; j--) {
                for (int k = 0; k < M; k++) d[k] = a[j][k], a[j][k] = all(k == j);
                for (int k = j; k < N; k++) {
                    for (int i = j + 1; i < M; i++) a[j][k] -= d[i] * a[i][k];
                    a[j][k] /= d[j];
                }
            }
            for (int j = 0; j <= M; j++)
                for (int k = 0; k <= M; k++) known[j][k] = k < j || j == M ? Vec{} : a[M + j][M + k];
            std::memcpy(factors(t), a, M * sizeof a[0]);
            use(t, factors(t));
        }
    }

    // Calls ``use`` with a row, its state, the noise of the step after it and its leverage, last to
    // first. A state's covariance P is that of the next, (I + D^-1 O) P (I + D^-1 O)^T + D^-1 D^-T,
    // a step back; of a far step without I, and as it is.
    template <bool LEVERAGES, class Use>
    void substitute(Use use) {
        Vec z[M] = {}, e[M], p[M][M] = {}, half[M][M];
        for (Int t = count_ - 1; t >= 0; t--) {
            const Vec* row = factors(t);
            for (int j = 0; j < M; j++) {
                e[j] = row[j * N + 2 * M];
                for (int k = 0; k < M; k++) e[j] -= row[j * N + M + k] * z[k];
            }
            const Mask far = is_far(t);
            const Vec near = far ? Vec{} : all(1.0);
            Vec ahead[M];
            for (int j = 0; j < M; j++) {
                ahead[j] = e[j];
                e[j] = far ? z[j] : e[j], z[j] = far ? ahead[j] : z[j] - e[j];
            }
            if (any(far)) shift<false>(step(t), ahead);
            for (int j = 0; any(far) && j < M; j++) e[j] -= far ? ahead[j] : Vec{};
            shift<false>(back(t, far), z);
            for (int i = 0; LEVERAGES && i < M; i++)
                for (int j = 0; j < M; j++) {
                    half[i][j] = near * p[i][j];
                    for (int k = 0; k < M; k++) half[i][j] += row[i * N + M + k] * p[k][j];
                }
            for (int i = 0; LEVERAGES && i < M; i++)
                for (int j = 0; j < M; j++) {
                    p[i][j] = near * half[i][j];
                    for (int k = 0; k < M; k++)
                        p[i][j] += half[i][k] * row[j * N + M + k] + row[i * N + k] * row[j * N + k];
                }
            for (int side = 0; LEVERAGES && side < 2; side++) {
                for (Vec(&columns)[M] : p) shift<false>(back(t, far), columns);
                for (int i = 0; i < M; i++)
                    for (int j = 0; j < i; j++) std::swap(p[i][j], p[j][i]);
            }
            use(t, z, e, weight(t) * p[0][0]);
        }
    }

    // Whether the step after a row is longer than 4 / (2 pi cutoff). Even steps are not.
    Mask is_far(Int t) const {
        Vec power = all(1.0);
        for (int k = 0; uneven_ && k < M; k++) power *= step(t) / 4.0;
        return uneven_ ? power > root_ : Mask{};
    }

    Vec back(Int t, Mask far) const { return far ? Vec{} : -step(t); }

    // Moves a state by Taylor's polynomial; TRANSPOSED: a gradient the other way.
    template <bool TRANSPOSED>
    void shift(Vec by, Vec* z) const {
        for (int i = 0; i < M; i++) {
            const int j = TRANSPOSED ? M - 1 - i : i;
            Vec factor = all(1.0);
            for (int k = 1; TRANSPOSED ? k <= j : j + k < M; k++) {
                factor *= by / static_cast<double>(k);
                z[j] += factor * z[TRANSPOSED ? j - k : j + k];
            }
        }
    }

    // The weight of a noise's part in the derivative of order M at the row before; 0 at the end.
    Vec control(Int t, int k) const {
        Vec weight = all(t + 1 < count_ ? static_cast<const double*>(job_.head)[k] : 0.0);
        for (int m = k; m < M && t + 1 < count_; m++) weight /= step(t);
        return weight;
    }

    // Subtracts the first value, so that equal values become exactly zero, then the mean.
    bool place_values(Int lane) {
        double first = 0.0, total = 0.0, sum = 0.0, *x = values_.at + lane;
        read(job_.actions, lane, count_, values_.at);
        for (Int t = 0; t < count_; t++) {
            const double w = weight(t)[lane];
            if (w > 0.0 && total == 0.0) first = x[t * W];
            x[t * W] = w > 0.0 ? x[t * W] - first : 0.0;
            total += w, sum += w * x[t * W];
        }
        const double mean = sum / total;
        for (Int t = 0; t < count_; t++) x[t * W] = weight(t)[lane] > 0.0 ? x[t * W] - mean : 0.0;
        shift_[lane] = first + mean;
        return shift_[lane] - shift_[lane] == 0.0 || total == 0.0;
    }

    Vec* factors(Int t) { return reinterpret_cast<Vec*>(factors_.at + t * M * N * W); }
    Vec weight(Int t) const { return load(weights_.at + t * W); }
    Vec step(Int t) const {
        if (t + 1 == count_) return Vec{};
        return uneven_ ? load(steps_.at + t * W) / unit_ : all(1.0);
    }

    void read(const Array& array, Int lane, Int count, double* to) const {
        for (Int t = 0; t < count; t++)
            convert(array, element(array, trajectory_[lane], t, dof_[lane]), 1, to + t * W + lane);
    }

    Vec read_upstream(int m, Int t) const {
        double lanes[W] = {};
        for (Int i = 0; job_.upstream[m].data && i < W; i++)
            convert(job_.upstream[m], element(job_.upstream[m], trajectory_[i], t, dof_[i]), 1,
                    lanes + i);
        return load(lanes);
    }

    template <class Out>
    void write(Out* out, Int batch, Int t, Vec x) const {
        for (Int i = 0; out && i < lanes_; i++)
            out[((trajectory_[i] - batch) * count_ + t) * job_.dofs + dof_[i]] = Out(x[i]);
    }

    const Job& job_;
    const Int count_;
    const bool uneven_;
    Buffer<double> values_, weights_, steps_, factors_;
    Int trajectory_[W], dof_[W], lanes_ = 0;
    Vec unit_, root_, shift_ = {};
};

// An item is a trajectory, or as many as fill a vector.
template <int M, class Out>
void smoother(Run& run, Int k, Int count) {
    const Job& job = run.job;
    const Int group = std::max(W / job.dofs, Int(1)), items = (job.batch + group - 1) / group;
    const Int size = job.used * job.dofs;
    Spline<M> spline(job);
    std::unique_ptr<Buffer<Out>> buffers[4];
    for (int m = 0; m < 4; m++)
        if (job.out[m].file >= 0) buffers[m] = std::make_unique<Buffer<Out>>(group * size);
    for (Int item = items * k / count; item < items * (k + 1) / count && !run.status; item++) {
        const Int batch = item * group, end = std::min(batch + group, job.batch);
        Out* to[4];
        for (int m = 0; m < 4; m++) {
            Out* all = static_cast<Out*>(job.out[m].data);
            to[m] = buffers[m] ? buffers[m]->at : all ? all + batch * size : nullptr;
        }
        for (Int lane = batch * job.dofs; lane < end * job.dofs; lane += W) {
            if (!spline.place(lane, std::min(W, end * job.dofs - lane)) && job.finite)
                run.status = NOT_FINITE;
            job.adjoint == 0   ? spline.write_rows(to, batch)
            : job.adjoint == 1 ? spline.write_gradient(to[0], batch)
                               : spline.write_sums(lane, to[0], batch);
        }
        for (int m = 0; m < 4; m++)
            if (buffers[m])
                write_values(run, job.out[m], to[m], batch * size, (end - batch) * size);
    }
}

void smoother_part(Run& run, Int k, Int count) {
    const bool wide = run.job.type;
    run.job.smoother == 3 ? (wide ? smoother<3, double> : smoother<3, float>)(run, k, count)
                          : (wide ? smoother<4, double> : smoother<4, float>)(run, k, count);
}

}  // namespace LEVEL
