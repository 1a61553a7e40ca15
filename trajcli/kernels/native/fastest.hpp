// The fastest timing of a path within limits of velocity, acceleration and jerk. Included by
// level.hpp after tile.hpp and smoother.hpp.
//
// A path q(u) is timed by b(x) = (dx/dt)^2, u = u0 + L g(x), x in [0, 1]: g begins and ends so
// slowly that b is finite where the path rests. b is a cubic spline with a knot at every second
// point of a grid. An interior-point method minimises the sum of w b^(-1/2) over them, subject to
//
//     V b <= 1,    A0 b + A1 b' <= 1,    b^(1/2) (J0 b + J1 b' + J2 b'') <= 1,
//
// the last two for each side of each dof's limit. The last is divided by the root, whose reciprocal
// is convex: its tangent is a bound on the safe side, taken anew at each step. All is relative to
// the fastest uniform pace. Lanes are dofs of the path, but points of the grid in the method; sums
// go point by point, so that every level has the same bits.

namespace LEVEL {

// Steps of the grid in the first and in the last interval between knots. The grid is finer there, as b
// changes fastest where a path leaves rest.
constexpr Int END = 8;
constexpr int CHECKED = 9;  // points of a step where limits are checked
constexpr int MOST_TURNS = 200;  // iterations of a solve
constexpr double NONE = std::numeric_limits<double>::infinity(), KNOWN = 1e30;
constexpr double AS_IT_IS[] = {1.0, 0.0, 0.0};  // a pace at which x is time
constexpr double GAUSS[][2] = {  // points of [0, 1] and their weights
    {0.03376524289842403, 0.08566224618958514}, {0.16939530676686776, 0.18038078652406936},
    {0.38069040695840156, 0.23395696728634552}, {0.6193095930415985, 0.23395696728634552},
    {0.8306046932331322, 0.18038078652406936},  {0.9662347571015759, 0.08566224618958514}};

// Returns the larger one, or NaN where either is NaN.
template <class T>
inline T worse(T a, T b) { return (b > a) | (b != b) ? b : a; }

inline double largest(const Vec& v) {
    double most = 0.0;
    for (Int i = 0; i < W; i++) most = worse(most, v[i]);
    return most;
}

inline double* reals(Address address) { return static_cast<double*>(address); }

// Solves symmetric positive definite equations. Row i: its elements i .. i + 3, its right side, and
// room for the diagonal as it was. There is room for three more rows and unknowns, which are zero.
inline void solve_band(double (*s)[6], double* x, Int n) {
    for (Int i = 0; i < n; i++) s[i][5] = s[i][0];
    for (Int i = 0; i < n; i++) {
        double* own = s[i];
        own[0] = 1.0 / std::max(own[0], 1e-14 * own[5]);
        for (int a = 1; a < 4; a++) {
            const double f = own[0] * own[a];
            for (int k = a; k < 4; k++) s[i + a][k - a] -= f * own[k];
            s[i + a][4] -= f * own[4];
        }
    }
    for (Int i = n - 1; i >= 0; i--) {
        x[i] = s[i][4];
        for (int a = 1; a < 4; a++) x[i] -= s[i][a] * x[i + a];
        x[i] *= s[i][0];
    }
}

// Quintic pieces, from the first point, by powers of the parameter.
class Pieces {
public:
    Pieces(const Curve& curve, Int dofs, Int power)
        : pitch(whole(dofs)), count_(curve.count - 1), power_(curve.clock ? 1 : power),
          knots_(curve.count), breaks_(curve.count), powers_(count_ * 6 * pitch) {
        const double *u = reals(curve.knots), *q = reals(curve.points), *v = reals(curve.slopes);
        Buffer<double> found(v ? 0 : 2 * curve.count * dofs);
        if (!v) join(curve, dofs, found.at), v = found.at;
        const double* a = v + curve.count * dofs;
        double size = 0.0, range = 0.0, g[4];
        for (Int i = 0; i < count_ * dofs; i++) {
            const Int k = i / dofs, d = i % dofs, e = i + dofs;
            const double h = u[k + 1] - u[k], y1 = v[i] * h, y2 = a[i] * h * h / 2.0;
            const double d0 = q[e] - q[i] - y1 - y2, d1 = v[e] * h - y1 - 2.0 * y2;
            const double d2 = a[e] * h * h / 2.0 - y2;
            const double y[] = {q[i] - q[d], y1, y2, 10.0 * d0 - 4.0 * d1 + d2,
                                -15.0 * d0 + 7.0 * d1 - 2.0 * d2, 6.0 * d0 - 3.0 * d1 + d2};
            double power = 1.0;
            for (int p = 0; p < 6; p++, power *= h) {
                powers_.at[(k * 6 + p) * pitch + d] = y[p] / power;
                range = worse(range, std::max(y[p], -y[p]));
            }
            size = std::max({size, q[i], -q[i]}), knots_.at[k + 1] = u[k + 1] - u[0];
        }
        still = range <= 1e-12 * size;
        for (Int k = 0; k < count_; k++)  // where the warp is at the knots
            for (double step = 0.5; step > 1e-17; step *= 0.5)
                if (warp(breaks_.at[k] + step, g), g[0] <= knots_.at[k]) breaks_.at[k] += step;
    }

    double length() const { return knots_.at[count_]; }

    // Finds the next point behind x where the jerk may jump, or the end.
    double next(double x) const {
        const double *from = breaks_.at, *end = from + count_, *at = std::upper_bound(from, end, x);
        return at < end ? *at : NONE;
    }

    // Computes the position of all dofs and its derivatives by time, where the pace is b: [4, pitch].
    void derive(double x, const double* b, double* to) const {
        double g[4];
        warp(x, g);
        const Int k = std::upper_bound(knots_.at + 1, knots_.at + count_, g[0]) - knots_.at - 1;
        const double tau = g[0] - knots_.at[k], root = __builtin_sqrt(b[0]);
        for (Int d = 0; d < pitch; d += W) {
            Vec q[4] = {};
            for (Int p = 5; p >= 0; p--) {
                for (int m = 3; m > 0; m--) q[m] = q[m] * tau + q[m - 1] * static_cast<double>(m);
                q[0] = q[0] * tau + load(powers_.at + (k * 6 + p) * pitch + d);
            }
            q[3] = q[3] * (g[1] * g[1] * g[1]) + q[2] * (3.0 * g[1] * g[2]) + q[1] * g[3];
            q[2] = q[2] * (g[1] * g[1]) + q[1] * g[2], q[1] *= g[1];
            q[3] = (q[3] * b[0] + q[2] * (1.5 * b[1]) + q[1] * (0.5 * b[2])) * root;
            q[2] = q[2] * b[0] + q[1] * (0.5 * b[1]), q[1] *= root;
            for (Int m = 0; m < 4; m++) store(to + m * pitch + d, q[m]);
        }
    }

    const Int pitch;  // from one derivative to the next
    bool still;

private:
    void warp(double x, double* g) const {
        const double y = x * (1.0 - x), x2 = x * x;
        const double warps[3][4] = {
            {x, 1.0, 0.0, 0.0}, {x2 * (3.0 - 2.0 * x), 6.0 * y, 6.0 - 12.0 * x, -12.0},
            {x2 * x * (10.0 + x * (6.0 * x - 15.0)), 30.0 * y * y, 60.0 * y * (1.0 - 2.0 * x),
             60.0 - 360.0 * y}};
        for (int m = 0; m < 4; m++) g[m] = length() * warps[power_ - 1][m];
    }

    // Finds the derivatives of the C4 spline: the integral of the third one's square is least.
    static void join(const Curve& curve, Int dofs, double* slopes) {
        static constexpr double K[4][5] = {  // of the derivatives at both ends, and of the step
            {192, 36, 168, -24, 360}, {36, 9, 24, -3, 60}, {168, 24, 192, -36, 360},
            {-24, -3, -36, 9, -60}};
        const double *u = reals(curve.knots), *q = reals(curve.points), *ends = reals(curve.ends);
        const Int n = 2 * curve.count;
        bool given[2] = {ends != nullptr, ends != nullptr};
        for (Int i = 0; ends && i < 4 * dofs; i++) given[i / (2 * dofs)] &= ends[i] == ends[i];
        // without ends, two points have no curvature
        const bool known[] = {given[0], given[0] || (n == 4 && !given[1]), given[1], given[1]};
        Buffer<double[6]> s(n + 3);
        Buffer<double> x(n + 3);
        for (Int d = 0; d < dofs; d++) {
            std::memset(s.at, 0, bytes<double[6]>(n + 3));
            for (Int i = 0; i < 4 * (curve.count - 1); i++) {
                const Int k = i / 4, e = i % 4;
                const double r = 1.0 / (u[k + 1] - u[k]), *from = q + k * dofs + d;
                const double units[] = {r, 1.0, r, 1.0, (from[dofs] - from[0]) * r * r};
                for (Int j = e; j < 5; j++)
                    s.at[2 * k + e][j < 4 ? j - e : 4] += K[e][j] * r * units[e] * units[j];
            }
            for (Int e = 0; e < 4; e++) {
                double* row = s.at[e < 2 ? e : n - 4 + e];
                if (!known[e]) continue;
                row[0] *= KNOWN, row[4] = given[e / 2] ? ends[e * dofs + d] * row[0] : 0.0;
            }
            solve_band(s.at, x.at, n);
            for (Int i = 0; i < n; i++) slopes[(i % 2 * curve.count + i / 2) * dofs + d] = x.at[i];
        }
    }

    const Int count_, power_;
    Buffer<double> knots_, breaks_, powers_;
};

// b and its derivatives at a point of the grid, and behind it. A pace: x, b and b'' at points.
struct Cubic {
    double b[4];

    static Cubic of(const double* pace, Int points, Int p) {
        const double *x = pace + p, *v = x + points, *s = v + points, h = x[1] - x[0];
        return {{v[0], (v[1] - v[0]) / h - h * (2.0 * s[0] + s[1]) / 6.0, s[0], (s[1] - s[0]) / h}};
    }
    Cubic after(double t) const {
        return {{b[0] + t * (b[1] + t * (b[2] / 2.0 + t * b[3] / 6.0)),
                 b[1] + t * (b[2] + t * b[3] / 2.0), b[2] + t * b[3], b[3]}};
    }
    double time(double t) const {
        double sum = 0.0;
        for (const double* g : GAUSS) sum += g[1] * t / __builtin_sqrt(after(t * g[0]).b[0]);
        return sum;
    }
};

// Writes when points are passed; returns the last time.
inline double pass(const double* pace, Int points, double* times) {
    for (Int p = 0; p + 1 < points; p++)
        times[p + 1] = times[p] + Cubic::of(pace, points, p).time(pace[p + 1] - pace[p]);
    return times[points - 1];
}

// Evaluates y at a point.
inline double interpolate(double at, const double* x, const double* y, Int n) {
    const Int k = std::upper_bound(x + 1, x + n - 1, at) - x - 1;
    return y[k] + (y[k + 1] - y[k]) / (x[k + 1] - x[k]) * (at - x[k]);
}

// Finds b of one path.
class Timer {
    enum { SOLVED, ROUGH, UNIFORM, STILL, ODD, BEYOND };  // as in fastest.py
    struct Block { Vec w, b, fall, e[3][4]; };            // of W points; fall: b^(-3/2) / 2
    struct Row { Vec c[3], z, change; };  // a limit there, its multiplier; change: first 1 / slack

public:
    Timer(const Timings& job, Curve& curve, const Pieces& path)
        : dofs_(job.dofs), curve_(curve), path_(path) {
        for (Int i = 0; i < 6 * dofs_; i++) {
            const Int m = i / 2 / dofs_, side = i / dofs_ % 2, d = i % dofs_;
            const double own = 1.0 / reals(side ? job.lower : job.upper)[m * dofs_ + d];
            inverse_.at[(2 * m + side) * pitch_ + d] = own;
            count_ += m > 0 && own != 0.0, jerks_ = m < 2 ? count_ : jerks_;
        }
    }

    void run(double tolerance) {
        place_grid();
        std::fill_n(now_.at + points_, points_, 1.0);
        double factor = check();
        const double pace = path_.length();
        const bool odd = !(factor > 1e-90 && factor < 1e90), beyond = moves_ && !(factor < pace);
        curve_.state = path_.still ? STILL : odd ? ODD : beyond ? BEYOND : UNIFORM;
        if (curve_.state != UNIFORM) return;
        if (moves_) factor = pace;
        scale_ = 1.0 / (factor * factor), change(scale_), take(factor);
        curve_.uniform = curve_.duration;
        std::fill_n(tight_.at, 3 * points_, 1.0), std::fill_n(c_.at, n_, 0.8);
        bool done = true;
        for (int turn = 0; turn < 4; turn++) {
            prepare();
            if (!begin()) break;
            const double gap = moves_ || turn == 0 ? 1.0 : turn == 1 ? 0.1 : 0.01;
            done = solve(turn ? tolerance : 10.0 * tolerance, gap);
            read();
            double over = worse(check(), 1e-3), part = 1.0;
            for (Int i = 0; turn && i < 3 * points_; i++)  // of both points of a step
                tight_.at[i] *= std::max({1.0, shares_.at[i], shares_.at[std::max(i - 1, Int(0))]});
            for (double less = 0x1p-14; moves_ && over > 1.0 && less < 1.0; less *= 2.0) {
                const double by = (1.0 - less) / part;  // nearer to the plan's own pace
                change(by, (1.0 - by) * scale_), part = 1.0 - less, over = check();
            }
            if (moves_) over = over <= 1.0 ? 1.0 : NONE;
            change(1.0 / (over * over));
            const double time = pass(now_.at, points_, times_.at);
            if (!(time < factor)) continue;
            factor = time, take(time), curve_.state = SOLVED;
            if (turn == 0) regrid();
        }
        if (curve_.state == SOLVED && !done) curve_.state = ROUGH;
    }

private:
    void change(double by, double more = 0.0) {
        for (Int i = points_; i < 3 * points_; i++)
            now_.at[i] = now_.at[i] * by + (i < 2 * points_ ? more : 0.0);
    }

    // Keeps the present pace, whose duration is known, with a margin for rounding.
    void take(double time) {
        const double margin = moves_ ? 1.0 : 1.0 + 1e-11;
        curve_.duration = time * margin;
        for (Int i = 0; i < 3 * points_; i++)
            reals(curve_.solution)[i] = now_.at[i] / (i < points_ ? 1.0 : margin * margin);
    }

    // Even, but nearer to an end than 8 steps an eighth of the distance from it apart.
    void place_grid() {
        const double half = static_cast<double>(curve_.intervals);
        const double step = 0.5 / (half - 8.0 * __builtin_log(16.0));
        for (Int p = 0; p < points_; p++) {
            const double i = static_cast<double>(std::min(p, points_ - 1 - p));
            const double even = 0.5 - (half - i) * step, near = 0.5 * __builtin_exp(i / 8.0 - 1.0);
            const double x = i < 8.0 ? i / 16.0 * step : i < 31.0 ? near * step : even;
            x_[p] = 2 * p < points_ ? x : 1.0 - x;
        }
    }

    // The first and the last coefficient lie beyond the ends, where b'' = 0 gives them by the next
    // two: they are left out, as zeros.
    Int first(Int p) const { return std::min(std::max((p - END + 2) / 2, Int(0)), n_ - 4); }
    Int knot(Int i) const { return i <= 0 ? 0 : i >= n_ - 3 ? points_ - 1 : END + 2 * (i - 1); }

    // Finds cubic B-splines at the points, of coefficients from ``first`` on, and what limits b.
    void prepare() {
        const double *x = x_, *inverse = inverse_.at, *q = motion_.at + pitch_;
        const Int last = n_ - 3;
        auto at = [&](Int j) {  // knots, which are mirrored at the ends
            return j < 0 ? -x[knot(-j)] : j > last ? 2.0 - x[knot(2 * last - j)] : x[knot(j)];
        };
        for (Int lane = 0; lane < blocks_ * W; lane++) {
            const Int p = std::min(lane, points_ - 1), k = first(p);  // the last fills its block
            Block& block = block_.at[lane / W];
            double e[4][3] = {{1.0}};
            for (int degree = 1; degree < 4; degree++) {
                double up[4][3] = {};
                for (int m = 0; m < degree; m++)
                    for (int o = 0; o < 3; o++) {
                        const double from = at(k + m - degree + 1), to = at(k + m + 1);
                        const double r = 1.0 / (to - from), more = o ? o * e[m][o - 1] : 0.0;
                        up[m][o] += ((to - x[p]) * e[m][o] - more) * r;
                        up[m + 1][o] += ((x[p] - from) * e[m][o] + more) * r;
                    }
                std::memcpy(e, up, sizeof e);
            }
            for (int end = 0; end < 2; end++)
                for (int o = 0; o < 3 && k == (end ? last - 1 : 0); o++) {
                    double& out = e[3 * end][o];
                    e[1 + end][o] += 2.0 * out, e[2 - end][o] -= out, out = 0.0;
                }
            for (int m = 0; m < 12; m++) block.e[m % 3][m / 3][lane % W] = e[m / 3][m % 3];
            block.w[lane % W] =
                (x[std::min(p + 1, points_ - 1)] - x[std::max(p - 1, Int(0))]) / 2.0;
            path_.derive(x[p], AS_IT_IS, motion_.at);
            double most = 0.0, units[] = {scale_, scale_, scale_ * __builtin_sqrt(scale_)};
            for (Int d = 0; d < dofs_; d++)
                most = std::max({most, q[d] * inverse[d], q[d] * inverse[pitch_ + d]});
            for (Int m = 0; m < 3; m++) units[m] *= tight_.at[m * points_ + p];
            Row* row = row_.at + lane / W * count_;
            row->c[0][lane % W] = std::max(most * most * units[0] * tight_.at[p], 1e-8);
            for (Int i = 2 * pitch_; i < 6 * pitch_; i++) {
                if (inverse[i] == 0.0) continue;
                const Int m = i / pitch_ / 2, d = i % pitch_;
                const double unit = inverse[i] * units[m], *own = q + m * pitch_ + d;
                row++;
                row->c[0][lane % W] = own[0] * unit;
                row->c[1][lane % W] = own[-pitch_] * (m == 1 ? 0.5 : 1.5) * unit;
                row->c[2][lane % W] = m == 2 ? q[d] * 0.5 * unit : 0.0;
            }
        }
    }

    // Evaluates a spline and its derivatives at the points of a block.
    void evaluate(const double* c, Int block, Vec* b) const {
        for (int o = 0; o < 3; o++) b[o] = Vec{};
        for (int m = 0; m < 4; m++) {
            Vec own;
            for (Int i = 0; i < W; i++) own[i] = c[first(block * W + i) + m];
            for (int o = 0; o < 3; o++) b[o] += block_.at[block].e[o][m] * own;
        }
    }

    // Scales b down until it is within limits; returns whether a path that moves at its ends is.
    bool begin() {
        if (moves_) std::fill_n(c_.at, n_, 1.0);
        assemble(1.0, 0.0);
        if (!(total_ < NONE)) std::fill_n(c_.at, n_, 0.8), assemble(1.0, 0.0);
        const double root = __builtin_cbrt(largest(most_[1]));
        const double by = std::max(1.05 * std::max(largest(most_[0]), root * root), 1.0);
        for (Int i = 0; i < n_ && !moves_; i++) c_.at[i] /= by;
        total_ *= moves_ ? 1.0 : __builtin_sqrt(by);
        return !moves_ || by < 1.05;
    }

    // Minimises the objective over the coefficients; returns whether that converged.
    bool solve(double tolerance, double gap) {
        const double m = static_cast<double>(count_ * points_);
        double old = 0.0, sigma = 0.3, step = 0.0;
        for (int turn = 1;; turn++) {
            curve_.iterations++;
            assemble(turn == 1 ? gap * total_ / m : 0.0, step);
            const double change = __builtin_fabs(total_ / old - 1.0);
            const bool done = turn > 1 && gap_ / total_ < tolerance && change < tolerance / 4.0;
            if (done || turn == MOST_TURNS || !(total_ < NONE)) return done;
            old = total_;
            const double mu = sigma * gap_ / m;
            for (Int i = 0; i < n_; i++) band_.at[i][4] += mu * band_.at[i][5];
            band_.at[0][0] = band_.at[n_ - 1][0] = 1.0;
            for (Int i = 0; i < 4; i++) {
                double* row = band_.at[i < 2 ? 1 + i : n_ - 5 + i];
                if (curve_.held[i / 2]) row[0] *= KNOWN, row[4] = 0.0;
            }
            solve_band(band_.at, change_.at, n_);
            direct(mu);
            const double own = std::min(1.0, 0.99 / std::max(largest(most_[0]), 1e-9));
            step = std::min(1.0, 0.99 / std::max(largest(most_[1]), 1e-9));
            for (Int i = 0; i < n_; i++) c_.at[i] += own * change_.at[i];
            const double left = 1.0 - std::min(own, step);
            sigma = std::min(std::max(left * left, 0.08), 0.8);
        }
    }

    // Sums up the equations, after the multipliers' step, or with ``gap`` for each at first: then
    // also finds the largest shares of limits, those that grow with b and those with b^(3/2).
    void assemble(double gap, double step) {
        std::memset(band_.at, 0, bytes<double[6]>(n_ + 3));
        total_ = gap_ = 0.0;
        most_[0] = most_[1] = Vec{};
        for (Int k = 0; k < blocks_; k++) {
            Block& block = block_.at[k];
            const Vec(&e)[3][4] = block.e;
            Vec b[3], h[3][3] = {}, f[3] = {}, gaps = {}, spent = {}, sums[4][6] = {};
            evaluate(c_.at, k, b);
            const Vec root = 1.0 / square_root(b[0]), fall = 0.5 * root * root * root;
            for (Int r = 0; r < count_; r++) {
                Row& row = row_.at[k * count_ + r];
                const Vec* c = row.c;
                const bool jerk = r >= jerks_;
                const Vec own[] = {jerk ? c[0] + fall : c[0], c[1], c[2]};
                const Vec used = c[0] * b[0] + c[1] * b[1] + c[2] * b[2];
                const Vec slack = (jerk ? root : all(1.0)) - used, inverse = 1.0 / slack;
                if (gap > 0.0) most_[jerk] = worse(most_[jerk], jerk ? used * b[0] * root : used);
                row.z = gap > 0.0 ? gap * inverse : row.z + step * row.change;
                row.change = inverse;
                for (int i = 0; i < 3; i++) {
                    const Vec weight = row.z * inverse * own[i];
                    for (int j = 0; j < 3; j++) h[i][j] += weight * own[j];
                    f[i] -= inverse * own[i];
                }
                gaps += row.z * slack;
                if (jerk) spent += row.z;
            }
            h[0][0] += 1.5 * worse(0.1 * block.w, block.w - spent) * fall * root * root;
            for (int q = 0; q < 4; q++) {
                for (int i = 0; i < 3; i++) {
                    const Vec g = h[i][0] * e[0][q] + h[i][1] * e[1][q] + h[i][2] * e[2][q];
                    for (int r = q; r < 4; r++) sums[q][r - q] += e[i][r] * g;
                    sums[q][5] += e[i][q] * f[i];
                }
                sums[q][4] = e[0][q] * block.w * fall;
            }
            for (Int i = 0, p = k * W; i < W && p < points_; i++, p++) {
                for (int m = 0; m < 24; m++)
                    band_.at[first(p) + m / 6][m % 6] += sums[m / 6][m % 6][i];
                total_ += block.w[i] * root[i], gap_ += gaps[i];
            }
            block.b = b[0], block.fall = fall;
        }
    }

    // Finds the multipliers' changes, and the largest shares that steps of 1 use up.
    void direct(double mu) {
        most_[0] = most_[1] = Vec{};
        for (Int k = 0; k < blocks_; k++) {
            const Block& block = block_.at[k];
            Vec b[3];
            evaluate(change_.at, k, b);
            most_[0] = worse(most_[0], -b[0] / block.b);
            for (Int r = 0; r < count_; r++) {
                Row& row = row_.at[k * count_ + r];
                Vec less = row.c[0] * b[0] + row.c[1] * b[1] + row.c[2] * b[2];
                if (r >= jerks_) less += block.fall * b[0];
                most_[0] = worse(most_[0], less * row.change);
                row.change = row.change * (row.z * less + mu) - row.z;
                most_[1] = worse(most_[1], -row.change / row.z);
            }
        }
    }

    // Computes b from its coefficients.
    void read() {
        Vec b[3];
        for (Int p = 0; p < points_; p++) {
            evaluate(c_.at, p / W, b);
            for (int m = 1; m < 3; m++) now_.at[m * points_ + p] = b[2 * m - 2][p % W] * scale_;
        }
    }

    // Finds the largest share of each limit in each step of the grid, at points between the path's
    // breaks, and between those an eighth of the second difference more. Returns the factor of time
    // that brings all to 1.
    double check() {
        double worst[3] = {}, from = 0.0, to, *q = motion_.at;
        std::fill_n(shares_.at, 3 * points_, 0.0);
        for (Int p = 0; p + 1 < points_; p += !(to < x_[p + 1]), from = to) {
            const Cubic b = Cubic::of(now_.at, points_, p);
            to = std::min(x_[p + 1], path_.next(from));
            for (int i = 0; i < CHECKED; i++) {
                const double part = i ? std::min(i / (CHECKED - 1.0), 1.0 - 1e-9) : 1e-9;
                const double x = from + part * (to - from);
                path_.derive(x, b.after(x - x_[p]).b, q + i * 4 * pitch_);
            }
            for (Int m = 0; m < 3; m++)
                for (Int d = 0; d < dofs_; d += W) {
                    const double* inverse = inverse_.at + 2 * m * pitch_ + d;
                    Vec high = all(-NONE), low = high, bulge = {}, v[CHECKED];
                    for (int i = 0; i < CHECKED; i++) {
                        v[i] = load(q + (i * 4 + m + 1) * pitch_ + d);
                        high = worse(high, v[i]), low = worse(low, -v[i]);
                        if (i < 2) continue;
                        const Vec bend = v[i] - 2.0 * v[i - 1] + v[i - 2];
                        bulge = worse(bulge, worse(bend, -bend));
                    }
                    const Vec up = (high + 0.125 * bulge) * load(inverse);
                    const Vec down = (low + 0.125 * bulge) * -load(inverse + pitch_);
                    double& share = shares_.at[m * points_ + p];
                    share = worse(share, largest(worse(up, down)));
                    worst[m] = worse(worst[m], share);
                }
        }
        return worse(worse(worst[0], __builtin_sqrt(worst[1])), __builtin_cbrt(worst[2]));
    }

    // Places the points where time passes in the best so far, and a tenth of them evenly.
    void regrid() {
        double *t = times_.at, *x = x_;
        const double *old = reals(curve_.solution), total = t[points_ - 1];
        for (Int p = 0; p < points_; p++) t[p] = 0.9 * (t[p] / total) + 0.1 * old[p];
        for (Int p = 0; p < points_; p++) x[p] = interpolate(old[p], t, old, points_);
        for (int i = 0; i < 4; i++, x[0] = 0.0) {  // smoothed
            for (Int p = 0; p + 1 < points_; p++) x[p] = (x[p] + x[p + 1]) / 2.0;
            for (Int p = points_ - 2; p > 0; p--) x[p] = (x[p] + x[p - 1]) / 2.0;
        }
        for (Int i = 0; i < n_; i++)
            c_.at[i] = interpolate(x[knot(i - 1)], old, old + points_, points_) / scale_;
    }

    const Int dofs_;
    Curve& curve_;
    const Pieces& path_;
    const Int points_ = 2 * curve_.intervals + 1, n_ = curve_.intervals - END + 5;
    const Int blocks_ = (points_ + W - 1) / W, pitch_ = path_.pitch;
    const bool moves_ = curve_.held[0] || curve_.held[1];
    Int count_ = 1, jerks_ = 1;  // limits at a point; the first is of the speed, the last of jerk
    double scale_ = 1.0, total_ = 0.0, gap_ = 0.0;
    Vec most_[2];
    Buffer<double> now_{3 * points_}, times_{points_}, tight_{3 * points_}, shares_{3 * points_};
    Buffer<double> inverse_{6 * pitch_}, motion_{4 * CHECKED * pitch_}, c_{n_}, change_{n_ + 3};
    Buffer<double[6]> band_{n_ + 3};
    double* const x_ = now_.at;
    Buffer<Block> block_{blocks_};
    Buffer<Row> row_{blocks_ * (4 * dofs_ + 1)};
};

// Samples a timed path at increasing times.
inline void sample(const Curve& curve, Int dofs, const Pieces& path) {
    const Int points = 2 * curve.intervals + 1;
    const double *x = reals(curve.solution), *t = reals(curve.times);
    Buffer<double> times(points), q(4 * path.pitch);
    pass(x, points, times.at);
    for (Int s = 0, p = 0; s < curve.samples; s++) {
        while (p + 2 < points && t[s] >= times.at[p + 1]) p++;
        const double h = x[p + 1] - x[p], left = t[s] - times.at[p];
        const Cubic b = Cubic::of(x, points, p);
        double tau = h * (left / (times.at[p + 1] - times.at[p]));
        for (int i = 0; i < 7; i++) {  // Newton's method
            tau = std::min(std::max(tau, 0.0), h);
            if (i < 6) tau += (left - b.time(tau)) * __builtin_sqrt(b.after(tau).b[0]);
        }
        path.derive(std::min(x[p] + tau, 1.0), b.after(tau).b, q.at);
        for (Int i = 0; i < 4 * dofs; i++)
            reals(curve.rows)[(i / dofs * curve.samples + s) * dofs + i % dofs] =
                q.at[i / dofs * path.pitch + i % dofs] + (i < dofs ? reals(curve.points)[i] : 0.0);
    }
}

void time_curve(const Timings& job, Curve& curve) {
    const Pieces path(curve, job.dofs, job.power);
    if (curve.times) sample(curve, job.dofs, path);
    else Timer(job, curve, path).run(job.power == 3 ? job.tolerance : 0.01 * job.tolerance);
}

}  // namespace LEVEL
