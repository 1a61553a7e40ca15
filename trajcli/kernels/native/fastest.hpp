// The fastest timing of a path within limits of velocity, acceleration and jerk. Included by level.hpp
// after smoother.hpp.
//
// A path q(u) is timed by b(x) = (dx/dt)^2, u = u0 + L g(x), x in [0, 1]: g begins and ends so slowly
// that b is finite where the path rests. b is a cubic spline whose knots are every second point of
// a grid. An interior-point method minimises the sum of w b^(-1/2) over the points, subject to
//
//     V b <= 1,   -lower <= A0 b + A1 b' <= upper,   -lower <= (J0 b + J1 b' + J2 b'') b^(1/2) <= upper,
//
// the last divided by the root of b, whose reciprocal is convex: its tangent is a safe bound.

namespace LEVEL {

constexpr Int END = 8;         // points within the first and the last interval between knots
constexpr Int CHECKED = 9;     // points of each interval of the grid where limits are checked
constexpr Int MOST_TURNS = 60; // of one solve
constexpr double LEAST = 1e-8; // of V: at most 1e4 times the speed of uniform scaling
constexpr double FAR = 1e6;     // a limit beyond this many times that of the other side is none

// Gauss's rule on [0, 1].
constexpr double GAUSS_AT[] = {0.03376524289842403, 0.16939530676686776, 0.38069040695840156,
                               0.6193095930415985, 0.8306046932331322, 0.9662347571015759};
constexpr double GAUSS_WEIGHT[] = {0.08566224618958514, 0.18038078652406936, 0.23395696728634552,
                                   0.23395696728634552, 0.18038078652406936, 0.08566224618958514};

// The larger one, and not a number where one of them is none.
inline double worse(double a, double b) { return b > a || b != b ? b : a; }
inline Vec larger(Vec a, Vec b) { return a > b ? a : b; }

// -- symmetric positive definite matrices of a band ------------------------------------------------

typedef double BandRow[5];  // elements i .. i + 3 of row i, and its diagonal before the elimination

inline void factorise(BandRow* s, Int n) {
    for (Int i = 0; i < n; i++) s[i][4] = 1e-14 * s[i][0];
    for (Int i = 0; i < n; i++) {
        double* row = s[i];
        const double inverse = row[0] = 1.0 / std::max(row[0], row[4]);
        for (int a = 1; a < 4; a++) {
            const double f = inverse * row[a];
            for (int k = a; k < 4; k++) s[i + a][k - a] -= f * row[k];
        }
        for (int a = 1; a < 4; a++) row[a] *= inverse;
    }
}

// Solves in place; there is room behind the last row.
inline void substitute(const BandRow* s, Int n, double* x) {
    for (int a = 0; a < 3; a++) x[n + a] = 0.0;
    for (Int i = 0; i < n; i++)
        for (int a = 1; a < 4; a++) x[i + a] -= s[i][a] * x[i];
    for (Int i = n - 1; i >= 0; i--) {
        x[i] *= s[i][0];
        for (int a = 1; a < 4 && i + a < n; a++) x[i] -= s[i][a] * x[i + a];
    }
}

// Takes an unknown out of the equations.
inline void fix(BandRow* s, Int i) {
    for (int a = 0; a < 4; a++) s[i][a] = a == 0;
    for (int a = 1; a < 4 && a <= i; a++) s[i - a][a] = 0.0;
}

// -- the path ---------------------------------------------------------------------------------------

// Quintic pieces between points, relative to the first point, of dofs padded to whole vectors.
class Pieces {
public:
    struct Place {
        const double* piece;
        double tau, g[4];  // behind the piece's beginning; the warp's derivatives
    };

    Pieces(const Curve& curve, Int dofs, Int power)
        : lanes(whole(dofs)), count_(curve.count - 1), power_(curve.clock ? 1 : power),
          knots_(curve.count), pieces_(count_ * 6 * lanes) {
        const double *u = static_cast<const double*>(curve.knots), *q = of(curve.points);
        for (Int k = 0; k <= count_; k++) knots_.at[k] = u[k] - u[0];
        for (Int i = 0; i < curve.count * dofs; i++) size = std::max(size, std::max(q[i], -q[i]));
        Buffer<double> found(curve.slopes ? 0 : 2 * curve.count * dofs);
        if (!curve.slopes) join_pieces(curve, dofs, found.at);
        const double* v = curve.slopes ? of(curve.slopes) : found.at;
        const double* a = v + curve.count * dofs;
        for (Int i = 0; i < count_ * dofs; i++) {
            const Int k = i / dofs, d = i % dofs, e = i + dofs;
            const double h = u[k + 1] - u[k], r = 1.0 / h;
            const double d0 = q[e] - q[i] - h * (v[i] + h * a[i] / 2.0);
            const double d1 = (v[e] - v[i] - h * a[i]) * h, d2 = (a[e] - a[i]) * h * h;
            const double powers[] = {q[i] - q[d], v[i], a[i] / 2.0,
                                     (10.0 * d0 - 4.0 * d1 + d2 / 2.0) * r * r * r,
                                     (-15.0 * d0 + 7.0 * d1 - d2) * r * r * r * r,
                                     (6.0 * d0 - 3.0 * d1 + d2 / 2.0) * r * r * r * r * r};
            for (Int p = 0; p < 6; p++) pieces_.at[(k * 6 + p) * lanes + d] = powers[p];
        }
    }

    double length() const { return knots_.at[count_]; }

    // Finds x, at or behind piece k, which becomes its own.
    Place find(double x, Int& k) const {
        const double y = x * (1.0 - x), all = length();
        Place at = {nullptr, 0.0, {x, 1.0, 0.0, 0.0}};
        if (power_ == 2) at = {nullptr, 0.0, {x * x * (3.0 - 2.0 * x), 6.0 * y, 6.0 - 12.0 * x, -12.0}};
        if (power_ == 3)
            at = {nullptr, 0.0, {x * x * x * (10.0 + x * (6.0 * x - 15.0)), 30.0 * y * y,
                                 60.0 * y * (1.0 - 2.0 * x), 60.0 - 360.0 * y}};
        for (double& g : at.g) g *= all;
        while (k + 1 < count_ && at.g[0] >= knots_.at[k + 1]) k++;
        at.piece = pieces_.at + k * 6 * lanes, at.tau = at.g[0] - knots_.at[k];
        return at;
    }

    // Gives the position and its derivatives by x of the vector of dofs from d on.
    void derive(const Place& at, Int d, Vec* q) const {
        for (int m = 0; m < 4; m++) q[m] = Vec{};
        for (Int p = 5; p >= 0; p--) {
            for (int m = 3; m > 0; m--) q[m] = q[m] * at.tau + static_cast<double>(m) * q[m - 1];
            q[0] = q[0] * at.tau + load(at.piece + p * lanes + d);
        }
        q[3] = q[3] * (at.g[1] * at.g[1] * at.g[1]) + q[2] * (3.0 * at.g[1] * at.g[2]) + q[1] * at.g[3];
        q[2] = q[2] * (at.g[1] * at.g[1]) + q[1] * at.g[2];
        q[1] *= at.g[1];
    }

    const Int lanes;
    double size = 0.0;  // of the largest position

private:
    static const double* of(Address address) { return static_cast<const double*>(address); }

    // Finds the derivatives of the C4 spline: they minimise the integral of the squared third one.
    static void join_pieces(const Curve& curve, Int dofs, double* slopes) {
        static constexpr double K[4][4] = {
            {192, 36, 168, -24}, {36, 9, 24, -3}, {168, 24, 192, -36}, {-24, -3, -36, 9}};
        static constexpr double PULL[] = {360, 60, 360, -60};
        const double *u = of(curve.knots), *q = of(curve.points), *ends = of(curve.ends);
        const Int count = curve.count, n = 2 * count;
        bool given[2];
        for (Int e = 0; e < 2; e++) {
            given[e] = ends;
            for (Int i = 0; ends && i < 2 * dofs; i++) given[e] &= !(ends[e * 2 * dofs + i] != ends[e * 2 * dofs + i]);
        }
        // an element of the matrix, by the derivatives it belongs to: those of even numbers are first ones
        auto element = [&](Int k, int i, int j) {
            const double r = 1.0 / (u[k + 1] - u[k]);
            return K[i][j] * (i % 2 ? 1.0 : r) * (j % 2 ? 1.0 : r) * r;
        };
        Buffer<BandRow> s(n + 3);
        Buffer<double> x(n + 3);
        for (Int k = 0; k + 1 < count; k++)
            for (int i = 0; i < 4; i++)
                for (int j = i; j < 4; j++) s.at[2 * k + i][j - i] += element(k, i, j);
        for (Int e = 0; e < 4; e++)
            if (given[e / 2]) fix(s.at, e / 2 ? n - 4 + e : e);
        factorise(s.at, n);
        const bool line = count == 2 && !given[0] && !given[1];
        for (Int d = 0; d < dofs; d++) {
            std::memset(x.at, 0, bytes<double>(n + 3));
            for (Int k = 0; k + 1 < count; k++) {
                const double r = 1.0 / (u[k + 1] - u[k]), step = q[(k + 1) * dofs + d] - q[k * dofs + d];
                for (int i = 0; i < 4; i++) x.at[2 * k + i] += PULL[i] * (i % 2 ? 1.0 : r) * step * r * r * r;
                if (line) x.at[0] = x.at[2] = step * r, x.at[1] = x.at[3] = 0.0;
            }
            for (int pass = 0; pass < 2; pass++)
                for (int e = 0; e < 4; e++) {
                    if (!given[e / 2]) continue;
                    const double value = ends[e * dofs + d];
                    if (pass) x.at[e / 2 ? n - 4 + e : e] = value;
                    for (int i = 0; i < 2 && !pass; i++)
                        if (e / 2) x.at[n - 4 + i] -= element(count - 2, i, e) * value;
                        else x.at[2 + i] -= element(0, 2 + i, e) * value;
                }
            if (!line) substitute(s.at, n, x.at);
            for (Int i = 0; i < n; i++) slopes[(i % 2 * count + i / 2) * dofs + d] = x.at[i];
        }
    }

    const Int count_, power_;
    Buffer<double> knots_, pieces_;
};

// -- the pace ---------------------------------------------------------------------------------------

// b behind a point: its value and derivatives.
struct Cubic {
    double b[4];

    double value(double t) const { return b[0] + t * (b[1] + t * (b[2] / 2.0 + t * b[3] / 6.0)); }
    double slope(double t) const { return b[1] + t * (b[2] + t * b[3] / 2.0); }
    double time(double t) const {
        double sum = 0.0;
        for (int i = 0; i < 6; i++) sum += GAUSS_WEIGHT[i] * t / __builtin_sqrt(value(t * GAUSS_AT[i]));
        return sum;
    }
};

// Writes when points are passed; returns the last time.
inline double pass(const double* x, const Cubic* b, Int points, double* times) {
    double sum = 0.0;
    for (Int p = 0; p < points; p++) {
        times[p] = sum;
        if (p + 1 < points) sum += b[p].time(x[p + 1] - x[p]);
    }
    return sum;
}

// Finds y at increasing places between those of x.
inline void interpolate(const double* at, const double* x, const double* y, Int count, double* out) {
    for (Int i = 0, k = 0; i < count; i++) {
        while (k + 2 < count && at[i] >= x[k + 1]) k++;
        out[i] = y[k] + (y[k + 1] - y[k]) / (x[k + 1] - x[k]) * (at[i] - x[k]);
    }
}

// One path, from its points to b at all points of the grid.
class Timer {
public:
    Timer(const Timings& job, Curve& curve, const Pieces& path) : job_(job), curve_(curve), path_(path) {
        rows_.at[0] = {0, 1.0, 1.0, FAR};
        for (Int q = 0; q < 3; q++) {
            if (q == 2) jerk_ = count_;
            for (Int d = 0; d < job.dofs; d++) {
                const double up = of(job.upper)[q * job.dofs + d], down = -of(job.lower)[q * job.dofs + d];
                const double least = std::min(up, down);
                inverse_.at[2 * q * path.lanes + d] = 1.0 / up;
                inverse_.at[(2 * q + 1) * path.lanes + d] = 1.0 / down;
                if (q && least < NONE)
                    rows_.at[count_++] = {d, 1.0 / least, std::min(up / least, FAR), std::min(down / least, FAR)};
            }
        }
    }

    void run() {
        place_grid();
        for (Int p = 0; p < points_; p++) now_.at[p] = {{1.0, 0.0, 0.0, 0.0}}, x_.at[p] = grid_.at[p];
        double factor = curve_.uniform = check(true);
        const double pace = path_.length();
        curve_.state = still_ ? STILL : !(factor > 0.0 && factor < NONE) ? ODD : moves_ && !(factor < pace) ? BEYOND : UNIFORM;
        if (curve_.state != UNIFORM) return;
        if (moves_) factor = curve_.uniform = pace;
        double took = factor, margin = moves_ ? 1.0 : 1.0 + 1e-11;
        scale_ = 1.0 / (factor * factor);
        for (Int p = 0; p < points_; p++) best_.at[p] = {{scale_, 0.0, 0.0, 0.0}}, best_x_.at[p] = x_.at[p];
        std::fill_n(tight_.at, 3 * pitch_, 1.0);
        std::fill_n(c_.at, n_, 0.8);
        bool done = true;
        for (int turn = 0; turn < 4 && count_ > 1; turn++) {
            if (turn < 2) place_basis();
            fill();
            double total = begin();
            if (!(total < NONE)) std::fill_n(c_.at, n_, 0.8), total = begin();
            done = solve(turn ? job_.tolerance : 10.0 * job_.tolerance,
                         total * (moves_ || turn == 0 ? 1.0 : turn == 1 ? 0.1 : 0.01));
            read();
            double over = worse(check(false), 1e-3);
            if (turn) tighten();
            double part = 1.0;
            for (int k = 14; moves_ && over > 1.0 && k > 0; k--) {  // nearer to the plan's own pace
                const double less = (1.0 - 1.0 / static_cast<double>(1 << k)) / part;
                part *= less;
                for (Int p = 0; p < points_; p++)
                    for (int m = 0; m < 4; m++) now_.at[p].b[m] = less * now_.at[p].b[m] + (m ? 0.0 : (1.0 - less) * scale_);
                over = check(false);
            }
            if (moves_) over = over > 1.0 ? NONE : over == over ? 1.0 : over;
            for (Int p = 0; p < points_; p++)
                for (double& b : now_.at[p].b) b /= over * over;
            const double time = pass(x_.at, now_.at, points_, times_.at);
            if (time < took) {
                took = time;
                std::swap(now_.at, best_.at);
                std::memcpy(best_x_.at, x_.at, bytes<double>(points_));
            }
            if (turn == 0) regrid();
        }
        for (Int p = 0; p < points_; p++)
            for (double& b : best_.at[p].b) b /= margin * margin;
        curve_.duration = pass(best_x_.at, best_.at, points_, times_.at);
        if (took < factor) curve_.state = done ? SOLVED : ROUGH;
        double* to = static_cast<double*>(curve_.solution);
        for (Int p = 0; p < points_; p++, to++) {
            *to = best_x_.at[p], to[points_] = best_.at[p].b[0], to[2 * points_] = best_.at[p].b[2];
        }
    }

private:
    // Even, but nearer to the ends than 8 steps an eighth of the distance from them apart.
    void place_grid() {
        const Int half = curve_.intervals;
        const double step = 0.5 / (static_cast<double>(half) - 22.18070977791825);  // 8 ln 16
        double far = step / 2.0;
        for (Int p = 0; p <= half; p++) {
            grid_.at[p] = p < 8 ? static_cast<double>(p) * step / 16.0
                          : p < 31 ? far : 0.5 - static_cast<double>(half - p) * step;
            if (p >= 8) far *= 1.1331484530668263;  // e^(1/8)
            grid_.at[2 * half - p] = 1.0 - grid_.at[p];
        }
    }

    Int knot(Int i) const { return i <= 0 ? 0 : i >= n_ - 1 ? points_ - 1 : END + 2 * (i - 1); }
    Int first(Int p) const { return std::min(std::max((p - END) / 2, Int(0)), n_ - 4); }

    // Cubic B-splines at the points, of the coefficients from ``first`` on; b'' is 0 at both ends.
    void place_basis() {
        const double* x = x_.at;
        double e[3][4], ends[2][2];
        auto splines = [&](Int p) {
            const Int k = p < END ? 0 : std::min((p - END) / 2 + 1, n_ - 2);
            auto at = [&](Int i) {
                const Int j = k + i, out = j < 0 ? j : std::max(j - n_ + 1, Int(0));
                const double width = j < 0 ? x[knot(1)] - x[0] : x[points_ - 1] - x[knot(n_ - 2)];
                return x[knot(j)] + static_cast<double>(out) * width;
            };
            double level[4][4] = {{1.0}};
            for (int degree = 1; degree < 4; degree++)
                for (int i = 0; i < degree; i++) {
                    const double from = at(i - degree + 1), to = at(i + 1), part = level[degree - 1][i] / (to - from);
                    level[degree][i] += (to - x[p]) * part;
                    level[degree][i + 1] += (x[p] - from) * part;
                }
            auto slope = [&](const double* parts, int degree, double* out) {
                out[0] = 0.0;
                for (int i = 0; i < degree; i++) {
                    const double down = degree * parts[i] / (at(i + 1) - at(i - degree + 1));
                    out[i] -= down, out[i + 1] = down;
                }
            };
            double twice[3];
            slope(level[1], 2, twice);
            std::memcpy(e[0], level[3], sizeof e[0]);
            slope(level[2], 3, e[1]), slope(twice, 3, e[2]);
            return k;
        };
        for (int i = 0; i < 2; i++) {
            splines(i ? points_ - 1 : 0);
            for (int m = 0; m < 2; m++) ends[i][m] = -e[2][m + 1] / e[2][i ? 3 : 0];
        }
        for (Int p = 0; p < points_; p++) {
            const Int k = splines(p);
            for (int o = 0; o < 3; o++) {
                for (int i = 0; i < 2; i++) {
                    if (k != (i ? n_ - 2 : 0)) continue;
                    for (int m = 0; m < 2; m++) e[o][m + 1] += ends[i][m] * e[o][i ? 3 : 0];
                    for (int m = 0; m < 4; m++) e[o][i ? 3 - m : m] = m == 3 ? 0.0 : e[o][i ? 2 - m : m + 1];
                }
                for (int m = 0; m < 4; m++) basis_.at[(4 * o + m) * pitch_ + p] = e[o][m];
            }
            w_.at[p] = (x[std::min(p + 1, points_ - 1)] - x[std::max(p - 1, Int(0))]) / 2.0;
        }
    }

    // What limits b at the points.
    void fill() {
        Buffer<double> q(4 * path_.lanes);
        const Int lanes = path_.lanes;
        Int k = 0;
        for (Int p = 0; p < points_; p++) {
            const Pieces::Place at = path_.find(x_.at[p], k);
            double most = 0.0;
            for (Int d = 0; d < lanes; d += W) {
                Vec own[4];
                path_.derive(at, d, own);
                for (int m = 0; m < 4; m++) store(q.at + m * lanes + d, own[m]);
                const Vec share = larger(own[1] * load(inverse_.at + d), -own[1] * load(inverse_.at + lanes + d));
                for (Int i = 0; i < W; i++) most = std::max(most, share[i]);
            }
            most *= tight_.at[p];
            limits_.at[p] = std::max(most * most * scale_, LEAST);
            for (Int r = 1; r < count_; r++) {
                const Row& row = rows_.at[r];
                const bool jerk = r >= jerk_;
                const double unit = row.scale * (jerk ? scale_ * __builtin_sqrt(scale_) : scale_) * tight_.at[(1 + jerk) * pitch_ + p];
                const double* own = q.at + row.dof;
                double* to = limits_.at + 3 * r * pitch_ + p;
                *to = own[(2 + jerk) * lanes] * unit;
                to[pitch_] = own[(1 + jerk) * lanes] * (jerk ? 1.5 : 0.5) * unit;
                to[2 * pitch_] = jerk ? own[lanes] * 0.5 * unit : 0.0;
            }
        }
    }

    // Spreads coefficients over the points.
    void spread(const double* c) {
        for (Int p = 0; p < points_; p++)
            for (int m = 0; m < 4; m++) spread_.at[m * pitch_ + p] = c[first(p) + m];
    }

    // Gives the spline that was spread, and its derivatives.
    void evaluate(Int p, Vec* b) const {
        for (int o = 0; o < 3; o++) {
            b[o] = Vec{};
            for (int m = 0; m < 4; m++)
                b[o] += load(basis_.at + (4 * o + m) * pitch_ + p) * load(spread_.at + m * pitch_ + p);
        }
    }

    // Gives a row's coefficients, and its share in b.
    Vec share(Int r, Int p, const Vec* b, Vec* c) const {
        for (int m = 0; m < 3; m++) c[m] = load(limits_.at + (3 * r + m) * pitch_ + p);
        return c[0] * b[0] + c[1] * b[1] + c[2] * b[2];
    }

    Int lanes(Int p) const { return std::min(W, points_ - p); }

    // Scales b down as far as it takes to begin within limits; returns the objective.
    double begin() {
        if (moves_) std::fill_n(c_.at, n_, 1.0);
        spread(c_.at);
        double most[2] = {}, total = 0.0;
        for (Int p = 0; p < points_; p += W) {
            Vec b[3], c[3], shares[2] = {};
            evaluate(p, b);
            const Vec root = square_root(b[0]), time = load(w_.at + p) / root;
            for (Int r = 0; r < count_; r++) {
                const Vec l = share(r, p, b, c) * (r < jerk_ ? all(1.0) : root);
                shares[r >= jerk_] = larger(shares[r >= jerk_], larger(l / rows_.at[r].up, -l / rows_.at[r].down));
            }
            for (Int i = 0; i < lanes(p); i++) {
                total += time[i];
                for (int k = 0; k < 2; k++) most[k] = std::max(most[k], shares[k][i]);
            }
        }
        const double root = __builtin_cbrt(most[1]), by = std::max(1.05 * std::max(most[0], root * root), 1.0);
        for (Int i = 0; i < n_ && !moves_; i++) c_.at[i] /= by;
        return moves_ ? total : total * __builtin_sqrt(by);
    }

    // Finds the coefficients from those at hand; returns whether it came to an end.
    bool solve(double tolerance, double gap) {
        const double m = static_cast<double>(2 * count_ * points_);
        double old = 0.0, sigma = 0.3, step = 0.0;
        for (Int turn = 1;; turn++) {
            curve_.iterations++;
            spread(c_.at);
            assemble(turn == 1 ? gap / m : 0.0, step);
            const bool near = gap_ / total_ < tolerance && __builtin_fabs(total_ / old - 1.0) < tolerance / 4.0;
            if ((turn > 1 && near) || turn == MOST_TURNS || !(total_ < NONE)) return turn > 1 && near;
            old = total_;
            const double mu = sigma * gap_ / m;
            for (Int i = 0; i < n_; i++) dc_.at[i] += mu * pull_.at[i];
            for (Int i = 0; i < 4; i++)
                if (held_[i / 2]) {
                    const Int at = i < 2 ? i : n_ - 4 + i;
                    fix(band_.at, at), dc_.at[at] = 0.0;
                }
            factorise(band_.at, n_);
            substitute(band_.at, n_, dc_.at);
            spread(dc_.at);
            double most[2] = {1e-9, 1e-9};
            direct(mu, most);
            const double own = std::min(1.0, 0.99 / most[0]);
            step = std::min(1.0, 0.99 / most[1]);
            for (Int i = 0; i < n_; i++) c_.at[i] += own * dc_.at[i];
            const double left = 1.0 - std::min(own, step);
            sigma = std::min(std::max(left * left, 0.08), 0.8);
        }
    }

    // Moves the multipliers by their step, or sets them by a first gap; sums up the equations.
    void assemble(double gap, double step) {
        std::memset(band_.at, 0, bytes<BandRow>(n_ + 3));
        std::memset(dc_.at, 0, bytes<double>(n_));
        std::memset(pull_.at, 0, bytes<double>(n_));
        total_ = gap_ = 0.0;
        for (Int p = 0; p < points_; p += W) {
            Vec b[3], c[3], h[6] = {}, f[3] = {}, sum = {}, spent = {};
            evaluate(p, b);
            const Vec root = 1.0 / square_root(b[0]), fall = 0.5 * root * root * root, w = load(w_.at + p);
            store(b_.at + p, b[0]), store(fall_.at + p, fall);
            for (Int r = 0; r < count_; r++) {
                const bool jerk = r >= jerk_;
                const Vec l = share(r, p, b, c), up = all(rows_.at[r].up), down = all(rows_.at[r].down);
                const Vec s[2] = {up * (jerk ? root : all(1.0)) - l, down * (jerk ? root : all(1.0)) + l};
                const Vec both = 1.0 / (s[0] * s[1]), inverse[2] = {both * s[1], both * s[0]};
                Vec z[2], k[2];
                for (Int i = 0; i < 2; i++) {
                    const Int at = (2 * r + i) * pitch_ + p;
                    z[i] = gap > 0.0 ? gap * inverse[i] : load(z_.at + at) + step * load(dz_.at + at);
                    store(z_.at + at, z[i]), store(slack_.at + at, inverse[i]);
                    k[i] = z[i] * inverse[i], sum += z[i] * s[i];
                }
                const Vec more = jerk ? c[0] + up * fall : c[0], less = jerk ? c[0] - down * fall : c[0];
                if (jerk) spent += up * z[0] + down * z[1];
                const Vec cross = k[0] * more + k[1] * less, own = k[0] + k[1], d = inverse[1] - inverse[0];
                h[0] += k[0] * more * more + k[1] * less * less, h[1] += cross * c[1], h[2] += cross * c[2];
                h[3] += own * c[1] * c[1], h[4] += own * c[1] * c[2], h[5] += own * c[2] * c[2];
                f[0] += inverse[1] * less - inverse[0] * more, f[1] += d * c[1], f[2] += d * c[2];
            }
            h[0] += 1.5 * larger(w - spent, 0.1 * w) * fall * root * root;
            Vec e[3][4], parts[20];
            for (int o = 0; o < 3; o++)
                for (int m = 0; m < 4; m++) e[o][m] = load(basis_.at + (4 * o + m) * pitch_ + p);
            for (int q = 0, at = 0; q < 4; q++) {
                const Vec g0 = h[0] * e[0][q] + h[1] * e[1][q] + h[2] * e[2][q];
                const Vec g1 = h[1] * e[0][q] + h[3] * e[1][q] + h[4] * e[2][q];
                const Vec g2 = h[2] * e[0][q] + h[4] * e[1][q] + h[5] * e[2][q];
                for (int r = q; r < 4; r++) parts[at++] = e[0][r] * g0 + e[1][r] * g1 + e[2][r] * g2;
                parts[10 + q] = e[0][q] * w * fall;
                parts[14 + q] = e[0][q] * f[0] + e[1][q] * f[1] + e[2][q] * f[2];
            }
            parts[18] = w * root, parts[19] = sum;
            for (Int i = 0; i < lanes(p); i++) {
                const Int to = first(p + i);
                for (int q = 0, at = 0; q < 4; q++) {
                    for (int r = q; r < 4; r++) band_.at[to + q][r - q] += parts[at++][i];
                    dc_.at[to + q] += parts[10 + q][i], pull_.at[to + q] += parts[14 + q][i];
                }
                total_ += parts[18][i], gap_ += parts[19][i];
            }
        }
    }

    // Finds the multipliers' changes, and the largest shares of what steps of 1 would use up.
    void direct(double mu, double* most) {
        for (Int p = 0; p < points_; p += W) {
            Vec b[3], c[3];
            evaluate(p, b);
            Vec used[2] = {-b[0] / load(b_.at + p), Vec{}};
            const Vec fall = load(fall_.at + p) * b[0];
            for (Int r = 0; r < count_; r++) {
                const Vec l = share(r, p, b, c), by = r < jerk_ ? Vec{} : fall;
                const Vec change[2] = {-rows_.at[r].up * by - l, l - rows_.at[r].down * by};
                const Int at[2] = {2 * r * pitch_ + p, (2 * r + 1) * pitch_ + p};
                const Vec z[2] = {load(z_.at + at[0]), load(z_.at + at[1])}, both = 1.0 / (z[0] * z[1]);
                for (int i = 0; i < 2; i++) {
                    const Vec inverse = load(slack_.at + at[i]), dz = inverse * (mu - z[i] * change[i]) - z[i];
                    store(dz_.at + at[i], dz);
                    used[0] = larger(-change[i] * inverse, used[0]);
                    used[1] = larger(-dz * (both * z[1 - i]), used[1]);
                }
            }
            for (Int i = 0; i < lanes(p); i++)
                for (int k = 0; k < 2; k++) most[k] = std::max(most[k], used[k][i]);
        }
    }

    // Reads b off its coefficients.
    void read() {
        spread(c_.at);
        for (Int p = 0; p < points_; p += W) {
            Vec b[3];
            evaluate(p, b);
            for (Int i = 0; i < lanes(p); i++)
                for (int o = 0; o < 3; o++) now_.at[p + i].b[o] = scale_ * b[o][i];
        }
        for (Int p = 0; p + 1 < points_; p++)
            now_.at[p].b[3] = (now_.at[p + 1].b[2] - now_.at[p].b[2]) / (x_.at[p + 1] - x_.at[p]);
    }

    // Finds the largest share of each limit in each interval, at its points and between them, where
    // a parabola is at most an eighth of the second difference beyond; returns the factor of time
    // that brings them to 1.
    double check(bool first) {
        const Int lanes = path_.lanes;
        Buffer<double> range(2 * lanes);
        double worst[3] = {};
        for (Int p = 0, k = 0; p + 1 < points_; p++) {
            Pieces::Place places[CHECKED];
            Cubic b[CHECKED];
            double shares[3] = {};
            for (Int i = 0; i < CHECKED; i++) {  // on this side of a jerk that jumps
                const double part = i == 0 ? 1e-9 : i == CHECKED - 1 ? 1.0 - 1e-9 : static_cast<double>(i) / (CHECKED - 1.0);
                const double tau = part * (x_.at[p + 1] - x_.at[p]);
                places[i] = path_.find(x_.at[p] + tau, k);
                const Cubic& own = now_.at[p];
                b[i] = {{own.value(tau), own.slope(tau), own.b[2] + tau * own.b[3], __builtin_sqrt(own.value(tau))}};
            }
            for (Int d = 0; d < lanes; d += W) {
                Vec low[3], high[3], bulge[3] = {}, last[3], before[3], odd = {};
                for (Int i = 0; i < CHECKED; i++) {
                    Vec q[4];
                    path_.derive(places[i], d, q);
                    const double* c = b[i].b;
                    const Vec f[3] = {q[1] * c[3], q[2] * c[0] + 0.5 * q[1] * c[1],
                                      c[3] * (q[3] * c[0] + 1.5 * q[2] * c[1] + 0.5 * q[1] * c[2])};
                    for (int m = 0; m < 3; m++) {
                        odd += f[m] - f[m];
                        low[m] = i ? -larger(-low[m], -f[m]) : f[m], high[m] = i ? larger(high[m], f[m]) : f[m];
                        const Vec bend = i > 1 ? f[m] - 2.0 * last[m] + before[m] : Vec{};
                        bulge[m] = larger(bulge[m], larger(bend, -bend));
                        before[m] = last[m], last[m] = f[m];
                    }
                    store(range.at + d, -larger(-load(range.at + d), -q[0]));
                    store(range.at + lanes + d, larger(load(range.at + lanes + d), q[0]));
                }
                for (int m = 0; m < 3; m++) {
                    const Vec up = (high[m] + bulge[m] / 8.0) * load(inverse_.at + 2 * m * lanes + d);
                    const Vec down = (bulge[m] / 8.0 - low[m]) * load(inverse_.at + (2 * m + 1) * lanes + d);
                    const Vec more = larger(up, down) + odd;
                    for (Int i = 0; i < W; i++) shares[m] = worse(shares[m], more[i]);
                }
            }
            for (int m = 0; m < 3; m++) shares_.at[m * pitch_ + p] = shares[m], worst[m] = worse(worst[m], shares[m]);
        }
        for (Int d = 0; first && d < job_.dofs; d++) still_ &= range.at[lanes + d] - range.at[d] <= 1e-12 * path_.size;
        return worse(worse(worst[0], __builtin_sqrt(worst[1])), __builtin_cbrt(worst[2]));
    }

    // Tightens the limits of both points of an interval by its largest share.
    void tighten() {
        for (int m = 0; m < 3; m++)
            for (Int p = 0; p < points_; p++) {
                const double* s = shares_.at + m * pitch_ + p;
                tight_.at[m * pitch_ + p] *= std::max({1.0, p + 1 < points_ ? s[0] : 1.0, p ? s[-1] : 1.0});
            }
    }

    // Places the points where time passes in the best so far, and some evenly.
    void regrid() {
        double *t = times_.at, *x = x_.at;
        const double total = pass(best_x_.at, best_.at, points_, t);
        for (Int p = 0; p < points_; p++) t[p] = 0.9 * t[p] / total + 0.1 * best_x_.at[p];
        interpolate(grid_.at, t, best_x_.at, points_, x);
        for (int i = 0; i < 4; i++) {
            double before = x[0];
            for (Int p = 1; p + 1 < points_; p++) {
                const double own = x[p];
                x[p] = (x[p + 1] + 2.0 * own + before) / 4.0, before = own;
            }
        }
        for (Int p = 0; p < points_; p++) t[p] = best_.at[p].b[0] / scale_;
        interpolate(x, best_x_.at, t, points_, b_.at);
        for (Int i = 0; i < n_; i++) c_.at[i] = b_.at[knot(i)];
    }

    static const double* of(Address address) { return static_cast<const double*>(address); }

    struct Row {
        Int dof;
        double scale, up, down;
    };
    enum { SOLVED, ROUGH, UNIFORM, STILL, ODD, BEYOND };  // as in fastest.py
    static constexpr double NONE = std::numeric_limits<double>::infinity();

    const Timings& job_;
    Curve& curve_;
    const Pieces& path_;
    const Int points_ = 2 * curve_.intervals + 1, n_ = curve_.intervals - END + 3, pitch_ = (points_ + 7) / 8 * 8;
    const bool held_[2] = {curve_.held[0] != 0, curve_.held[1] != 0}, moves_ = held_[0] || held_[1];
    bool still_ = true;
    Int count_ = 1, jerk_ = 1;  // rows of limits: of the speed, of accelerations, of jerks
    double scale_ = 1.0, total_ = 0.0, gap_ = 0.0;
    Buffer<Row> rows_{2 * job_.dofs + 1};
    Buffer<double> inverse_{6 * path_.lanes}, grid_{pitch_}, x_{pitch_}, best_x_{pitch_}, times_{pitch_}, w_{pitch_},
        b_{pitch_}, fall_{pitch_}, tight_{3 * pitch_}, shares_{3 * pitch_}, basis_{12 * pitch_}, spread_{4 * pitch_},
        limits_{3 * most() * pitch_}, z_{2 * most() * pitch_}, dz_{2 * most() * pitch_}, slack_{2 * most() * pitch_},
        c_{n_ + 3}, dc_{n_ + 3}, pull_{n_ + 3};
    Buffer<BandRow> band_{n_ + 3};
    Buffer<Cubic> now_{pitch_}, best_{pitch_};

    Int most() const { return 2 * job_.dofs + 1; }
};

// Samples a path that was timed, at increasing times.
inline void sample(const Timings& job, const Curve& curve, const Pieces& path) {
    const Int points = 2 * curve.intervals + 1;
    const double *x = static_cast<const double*>(curve.solution), *t = static_cast<const double*>(curve.times);
    Buffer<double> times(points), own(path.lanes);
    Buffer<Cubic> b(points);
    for (Int p = 0; p + 1 < points; p++) {
        const double *value = x + points + p, *second = value + points, h = x[p + 1] - x[p];
        b.at[p] = {{value[0], (value[1] - value[0]) / h - h * (2.0 * second[0] + second[1]) / 6.0, second[0],
                    (second[1] - second[0]) / h}};
    }
    pass(x, b.at, points, times.at);
    for (Int s = 0, p = 0, k = 0; s < curve.samples; s++) {
        while (p + 2 < points && t[s] >= times.at[p + 1]) p++;
        const double h = x[p + 1] - x[p], left = t[s] - times.at[p];
        auto within = [&](double tau) { return std::min(std::max(tau, 0.0), h); };
        double tau = within(h * left / (times.at[p + 1] - times.at[p]));
        for (int i = 0; i < 6; i++)
            tau = within(tau + (left - b.at[p].time(tau)) * __builtin_sqrt(b.at[p].value(tau)));
        const double value = b.at[p].value(tau), slope = b.at[p].slope(tau), second = b.at[p].b[2] + tau * b.at[p].b[3];
        const Pieces::Place at = path.find(std::min(x[p] + tau, 1.0), k);
        for (Int d = 0; d < path.lanes; d += W) {
            Vec q[4];
            path.derive(at, d, q);
            const double root = __builtin_sqrt(value);
            const Vec rows[4] = {q[0], q[1] * root, q[2] * value + 0.5 * q[1] * slope,
                                 root * (q[3] * value + 1.5 * q[2] * slope + 0.5 * q[1] * second)};
            for (Int m = 0; m < 4; m++)
                for (Int i = 0; i < std::min(W, job.dofs - d); i++)
                    static_cast<double*>(curve.rows)[(m * curve.samples + s) * job.dofs + d + i] =
                        rows[m][i] + (m ? 0.0 : static_cast<const double*>(curve.points)[d + i]);
        }
    }
}

void time_curve(const Timings& job, Curve& curve) {
    const Pieces path(curve, job.dofs, job.power);
    if (curve.times) sample(job, curve, path);
    else Timer(job, curve, path).run();
}

}  // namespace LEVEL
