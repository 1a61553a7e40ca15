// The smoothing spline of kernels/program.py and its adjoint, by the method of torch_ops/_smoother.py.
// Included by level.hpp after tile.hpp. A lane is a dof of a trajectory; where dofs are few, those of
// the next trajectory follow.

namespace LEVEL {

inline Vec square_root(Vec v) {
    for (Int i = 0; i < W; i++) v[i] = __builtin_sqrt(v[i]);
    return v;
}

// Makes columns from K to the one before the last upper triangular, by Householder's reflections, in
// place. Unless ``FULL``, only N / 2 rows of a column below the diagonal, and the last, have values.
template <bool FULL, int K = 0, int N>
inline void triangulate(Vec (&a)[N][N]) {
    constexpr int L = N - 1, END = FULL ? L : std::min(K + N / 2 + 1, L);
    // two sums, as each addition to one would wait for the addition before
    Vec squares[2] = {a[K][K] * a[K][K], a[L][K] * a[L][K]};
    for (int i = K + 1; i < END; i++) squares[i & 1] += a[i][K] * a[i][K];
    const Vec x = a[K][K], norm = square_root(squares[0] + squares[1]), to = x > 0.0 ? -norm : norm;
    const Vec v = x - to, product = to * v, scale = product != 0.0 ? 1.0 / product : Vec{};
    for (int j = K + 1; j < N; j++) {
        Vec dot = a[L][K] * a[L][j];
        for (int i = K + 1; i < END; i++) dot += a[i][K] * a[i][j];
        dot = (dot + v * a[K][j]) * scale;
        a[K][j] += v * dot, a[L][j] += a[L][K] * dot;
        for (int i = K + 1; i < END; i++) a[i][j] += a[i][K] * dot;
    }
    a[K][K] = to;
    if constexpr (K + 2 < N) triangulate<FULL, K + 1>(a);
}

// The lanes of a vector through all of their rows, in units. M: the order that is penalised.
template <int M>
class Spline {
    static constexpr int N = 2 * M + 1;
    static constexpr Int BLOCK = 4096 / W;  // rows whose factors stay in the caches
    using Known = Vec[M + 1][M + 1];        // information on a state, by the rows before it

public:
    explicit Spline(const Job& job)
        : job_(job),
          count_(job.used),
          uneven_(job.dt.stride[1] != 0),
          values_(job.adjoint == 1 ? count_ * M : count_),
          weights_(count_),
          steps_(uneven_ ? count_ : 0),
          factors_(std::min(count_, BLOCK) * M * N),
          known_((count_ / BLOCK + 1) * (M + 1) * (M + 1)) {}

    // Takes lanes from ``first`` on, of all dofs of all trajectories; past the end the last repeats.
    // Subtracts the first value, so that equal values become exactly zero, then the mean.
    // Returns false where an action that has weight is not finite.
    bool place(Int first, Int lanes) {
        for (Int i = 0; i < W; i++) {
            const Int lane = first + std::min(i, lanes - 1);
            trajectory_[i] = lane / job_.dofs, dof_[i] = lane % job_.dofs;
            unit_[i] = static_cast<const double*>(job_.unit)[job_.dt.stride[0] ? trajectory_[i] : 0];
            root_[i] = __builtin_sqrt(static_cast<const double*>(job_.stiffness)[lane]);
        }
        first_ = first, lanes_ = lanes;
        Vec start = {}, total = {}, sum = {};
        for (Int t = 0; t < count_; t++) {
            const Vec w = weights_.at[t] = read(job_.weights, t), x = read(job_.actions, t);
            if (uneven_ && t + 1 < count_) steps_.at[t] = read(job_.dt, t);
            start = w > 0.0 && total == 0.0 ? x : start;
            values_.at[t] = w > 0.0 ? x - start : Vec{};
            total += w, sum += w * values_.at[t];
        }
        const Vec mean = sum / total;
        for (Int t = 0; t < count_; t++)
            values_.at[t] = weight(t) > 0.0 ? values_.at[t] - mean : Vec{};
        shift_ = start + mean;
        return !any(shift_ - shift_ != 0.0 && total != 0.0);
    }

    // Writes rows, or the gradient w H^-1 g with H the matrix of the normal equations, or residuals
    // and sums. out: outputs of the trajectories from ``batch`` on.
    template <class Out>
    void compute(Out* const* out, Int batch) {
        Vec squares = {}, leverages = {};
        solve([&](Int t, const Vec* z, const Vec* e, Vec leverage) {
            if (job_.adjoint == 1) return write(out[0], batch, t, weight(t) * z[0]);
            const Vec residual = values_.at[t] - z[0];
            squares += weight(t) * residual * residual, leverages += leverage;
            if (job_.adjoint == 2) return write(out[0], batch, t, residual);
            Vec x[4] = {z[0] + shift_, z[1], z[2], M > 3 ? z[M - 1] : Vec{}}, power = all(1.0);
            for (int k = 0; M == 3 && k < M; k++) x[3] += control(t, k) * e[k];
            for (int m = 0; m < 4; m++, power *= unit_) write(out[m], batch, t, x[m] / power);
        });
        for (int k = 0; k < 2 && job_.adjoint == 2; k++)
            std::memcpy(static_cast<double*>(job_.start_gradient[k]) + first_,
                        k ? &leverages : &squares, bytes<double>(lanes_));
    }

private:
    // Solves the equations, and calls ``use`` as ``substitute`` does. Only the factors of one block are
    // kept. On the way back they are computed again, which takes less time than fetching the factors of
    // all rows from memory.
    template <class Use>
    void solve(Use use) {
        Known known = {}, *saved = reinterpret_cast<Known*>(known_.at);
        Vec z[M] = {}, p[M][M] = {}, state[M] = {};
        const Int last = (count_ - 1) / BLOCK;
        for (Int k = -last; k <= last; k++) {  // forth to the last block, and back
            const Int block = last - std::max(k, -k), begin = block * BLOCK;
            std::memcpy(k > 0 ? known : saved[block], k > 0 ? saved[block] : known, sizeof known);
            eliminate(begin, known, k > 0 ? nullptr : state, k >= 0);
            if (k >= 0) substitute(begin, z, p, use);
        }
    }

    // Eliminates, first to last, the noise e of each step: the difference of the next state z from
    // Taylor's polynomial of the one before. The rows that penalise e, the information on the state
    // and the measured value become D e + O z = c and the information on z; factors are
    // D^-1 [I O c]. The last step leads to z = 0 by e alone. Over a step that is far, e is the
    // small difference of large numbers: the state before it, x, is eliminated in its place.
    void eliminate(Int begin, Known& known, Vec* state, bool keep) {
        const double* penalty = static_cast<const double*>(job_.table);
        Vec a[N][N], scale[M];
        for (Int t = begin; t < std::min(begin + BLOCK, count_); t++) {
            known[M][0] = square_root(weight(t));
            if (job_.adjoint != 1) known[M][M] = known[M][0] * values_.at[t];
            for (int k = M - 1; k >= 0 && (uneven_ || t == begin || t + 1 == count_); k--)
                scale[k] = t + 1 == count_ ? Vec{}
                           : (k + 1 < M ? scale[k + 1] : root_ * square_root(step(t))) / step(t);
            const Mask far = is_far(t);
            for (int j = 0; j < M; j++)
                for (int k = 0; k < N; k++) a[j][k] = k <= j ? penalty[j * M + k] * scale[k] : Vec{};
            for (int j = 0; j <= M; j++) {
                shift<true>(back(t, far), known[j]);
                for (int k = 0; k < M; k++) a[M + j][k] = -known[j][k], a[M + j][M + k] = known[j][k];
                a[M + j][2 * M] = known[j][M];
            }
            if (any(far)) {
                Vec b[N][N];  // the largest rows first
                for (int j = 0; j < N; j++)
                    for (int k = 0; k < N; k++)
                        b[j][k] = k < M        ? -a[(M + j) % N][k]
                                  : k == 2 * M ? a[(M + j) % N][k]
                                  : j > M      ? a[j - M - 1][k - M]
                                               : Vec{};
                for (int j = M + 1; j < N; j++) shift<true>(step(t), b[j]);
                for (int j = 0; j < N; j++)
                    for (int k = 0; k < N; k++) a[j][k] = far ? b[j][k] : a[j][k];
            }
            any(far) ? triangulate<true>(a) : triangulate<false>(a);
            Vec* row = factors(t);
            for (int j = M - 1; j >= 0 && (keep || job_.adjoint == 1); j--) {
                const Vec inverse = 1.0 / a[j][j];
                for (int k = j; k < N; k++) {
                    Vec sum = k < M ? all(k == j) : a[j][k];
                    for (int i = j + 1; i < M; i++) sum -= a[j][i] * row[i * N + k];
                    row[j * N + k] = sum * inverse;
                }
            }
            if (job_.adjoint == 1 && state) pull(t, row, state);
            for (int j = 0; j <= M; j++)
                for (int k = 0; k <= M; k++) known[j][k] = k < j || j == M ? Vec{} : a[M + j][M + k];
        }
    }

    // Keeps, first to last, what takes the place of D^-1 c in a gradient: D^-1 D^-T by the gradient
    // by the noise of the step after a row. ``state`` becomes the gradient by the next state.
    void pull(Int t, const Vec* row, Vec* state) const {
        Vec* sums = values_.at + t * M;
        Vec power = all(1.0), jerk = {}, ahead[M], noise[M];
        for (int m = 0; m < 4; m++, power *= unit_)
            (m < M ? state[m % M] : jerk) += read(job_.upstream[m], t) / power;
        const Mask far = is_far(t);
        for (int k = 0; k < M; k++) ahead[k] = control(t, k) * jerk;
        shift<true>(back(t, far), state);
        for (int k = 0; k < M; k++) {
            noise[k] = far ? state[k] : ahead[k] - state[k];
            state[k] = far ? ahead[k] : state[k];
        }
        if (any(far)) shift<true>(step(t), ahead);
        for (int k = 0; any(far) && k < M; k++) noise[k] -= far ? ahead[k] : Vec{};
        for (int j = 0; j < M; j++) {
            Vec c = sums[j] = Vec{};
            for (int k = 0; k <= j; k++) c += row[k * N + j] * noise[k];
            for (int k = 0; k <= j; k++) sums[k] += row[k * N + j] * c;
            for (int k = 0; k < M; k++) state[j] -= row[k * N + M + j] * noise[k];
        }
    }

    // Calls ``use`` with a row, its state, the noise of the step after it and its leverage, last to
    // first. A state's covariance P is that of the next, (I + D^-1 O) P (I + D^-1 O)^T + D^-1 D^-T,
    // a step back; of a far step without I, and as it is.
    template <class Use>
    void substitute(Int begin, Vec (&z)[M], Vec (&p)[M][M], Use use) {
        const bool leverages = job_.adjoint == 2;
        Vec e[M], ahead[M], half[M][M];
        for (Int t = std::min(begin + BLOCK, count_) - 1; t >= begin; t--) {
            const Vec* row = factors(t);
            for (int j = 0; j < M; j++) {
                e[j] = job_.adjoint == 1 ? values_.at[t * M + j] : row[j * N + 2 * M];
                for (int k = 0; k < M; k++) e[j] -= row[j * N + M + k] * z[k];
            }
            const Mask far = is_far(t);
            const Vec near = far ? Vec{} : all(1.0);
            for (int j = 0; j < M; j++) {
                ahead[j] = e[j];
                e[j] = far ? z[j] : e[j], z[j] = far ? ahead[j] : z[j] - e[j];
            }
            if (any(far)) shift<false>(step(t), ahead);
            for (int j = 0; any(far) && j < M; j++) e[j] -= far ? ahead[j] : Vec{};
            shift<false>(back(t, far), z);
            for (int i = 0; leverages && i < M; i++)
                for (int j = 0; j < M; j++) {
                    half[i][j] = near * p[i][j];
                    for (int k = 0; k < M; k++) half[i][j] += row[i * N + M + k] * p[k][j];
                }
            for (int i = 0; leverages && i < M; i++)
                for (int j = 0; j < M; j++) {
                    p[i][j] = near * half[i][j];
                    for (int k = 0; k < M; k++)
                        p[i][j] += half[i][k] * row[j * N + M + k] + row[i * N + k] * row[j * N + k];
                }
            for (int side = 0; leverages && side < 2; side++) {
                for (Vec(&columns)[M] : p) shift<false>(back(t, far), columns);
                for (int i = 0; i < M; i++)
                    for (int j = 0; j < i; j++) std::swap(p[i][j], p[j][i]);
            }
            use(t, z, e, weight(t) * p[0][0]);
        }
    }

    // Tells whether the step after a row is longer than 4 / (2 pi cutoff). Equal steps never are.
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
        for (int m = k; m < M && uneven_ && t + 1 < count_; m++) weight /= step(t);
        return weight;
    }

    Vec* factors(Int t) { return factors_.at + t % BLOCK * M * N; }
    Vec weight(Int t) const { return weights_.at[t]; }
    Vec step(Int t) const {
        if (t + 1 == count_) return Vec{};
        return uneven_ ? steps_.at[t] / unit_ : all(1.0);
    }

    Vec read(const Array& array, Int t) const {
        Vec lanes = {};
        for (Int i = 0; array.data && i < W; i++) {
            const char* from = element(array, trajectory_[i], t, dof_[i]);
            lanes[i] = array.type ? *reinterpret_cast<const double*>(from)
                                  : *reinterpret_cast<const float*>(from);
        }
        return lanes;
    }

    template <class Out>
    void write(Out* out, Int batch, Int t, Vec x) const {
        for (Int i = 0; out && i < lanes_; i++)
            out[((trajectory_[i] - batch) * count_ + t) * job_.dofs + dof_[i]] = Out(x[i]);
    }

    const Job& job_;
    const Int count_;
    const bool uneven_;
    Buffer<Vec> values_, weights_, steps_, factors_, known_;
    Int trajectory_[W], dof_[W], first_ = 0, lanes_ = 0;
    Vec unit_, root_, shift_;
};

// An item is a vector of lanes. In a job that writes to files it is a trajectory, or as many of them as
// fill a vector.
template <int M, class Out>
void smoother(Run& run, Int k, Int count) {
    const Job& job = run.job;
    const Int size = job.used * job.dofs, total = job.batch * job.dofs;
    bool in_files = false;
    for (const Output& out : job.out) in_files |= out.file >= 0;
    const Int group = std::max(W / job.dofs, Int(1)) * job.dofs, lanes = in_files ? group : W;
    const Int items = (total + lanes - 1) / lanes, last = items * (k + 1) / count;
    if (items * k / count == last) return;
    Spline<M> spline(job);
    Buffer<Out> buffer(in_files ? 4 * group * job.used : 0);
    for (Int item = items * k / count; item < last && !run.status; item++) {
        const Int begin = item * lanes, end = std::min(begin + lanes, total);
        const Int batch = in_files ? begin / job.dofs : 0;
        Out* to[4];
        for (int m = 0; m < 4; m++) {
            to[m] = static_cast<Out*>(job.out[m].data);
            if (job.out[m].file >= 0) to[m] = buffer.at + m * group * job.used;
            else if (to[m]) to[m] += batch * size;
        }
        for (Int lane = begin; lane < end; lane += W) {
            const bool finite = spline.place(lane, std::min(W, end - lane));
            if (!finite && !job.allow_nonfinite) run.status = NOT_FINITE;
            spline.compute(to, batch);
        }
        for (int m = 0; m < 4; m++)
            if (job.out[m].file >= 0)
                write_values(run, job.out[m], to[m], batch * size, (end - begin) * job.used);
    }
}

void smoother_part(Run& run, Int k, Int count) {
    const bool wide = run.job.type;
    run.job.smoother == 3 ? (wide ? smoother<3, double> : smoother<3, float>)(run, k, count)
                          : (wide ? smoother<4, double> : smoother<4, float>)(run, k, count);
}

}  // namespace LEVEL
