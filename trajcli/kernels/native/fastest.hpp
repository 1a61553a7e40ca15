// The fastest timing of a path within limits of velocity, acceleration and jerk. Included by
// level.hpp after tile.hpp.
//
// A path q(u) is timed by b(x) = (dx/dt)^2, u = u0 + L g(x), x in [0, 1]: g begins and ends so
// slowly that b is finite where the path rests. b is a cubic spline with a knot at every second
// point of a grid. An interior-point method minimises the sum of w b^(-1/2) over them, subject to
//
//     V b <= 1,    -down <= A0 b + A1 b' <= up,    -down <= b^(1/2) (J0 b + J1 b' + J2 b'') <= up.
//
// The last is divided by the root, whose reciprocal is convex: its tangent is a bound on the safe
// side, taken anew at each step. All of it is relative to the fastest uniform pace.

namespace LEVEL {

constexpr Int END = 8;      // steps of the grid in the first and the last interval between knots
constexpr int CHECKED = 9;  // points of a step where limits are checked
constexpr int MOST_TURNS = 200;  // of a solve
constexpr double NONE = std::numeric_limits<double>::infinity(), KNOWN = 1e30;
constexpr double GAUSS[][2] = {  // points of [0, 1] and their weights
    {0.03376524289842403, 0.08566224618958514}, {0.16939530676686776, 0.18038078652406936},
    {0.38069040695840156, 0.23395696728634552}, {0.6193095930415985, 0.23395696728634552},
    {0.8306046932331322, 0.18038078652406936},  {0.9662347571015759, 0.08566224618958514}};

// The larger one; not a number where one of them is none.
inline double worse(double a, double b) { return b > a || b != b ? b : a; }

// Eight dofs at every level, so that sums have one order.
struct Eight {
    Vec v[8 / W];

    INLINE Eight(double x = 0.0) { for (Vec& own : v) own = all(x); }
    double operator[](Int i) const { return v[i / W][i % W]; }
    void set(Int i, double x) { v[i / W][i % W] = x; }
    INLINE void operator+=(const Eight& more) { *this = *this + more; }
#define EIGHT(name, value)                                                         \
    INLINE friend Eight name(const Eight& a, const Eight& b) {                            \
        Eight out;                                                                 \
        for (Int i = 0; i < 8 / W; i++) {                                          \
            const Vec x = a.v[i], y = b.v[i];                                      \
            out.v[i] = value;                                                      \
        }                                                                          \
        return out;                                                                \
    }
    EIGHT(operator+, x + y)
    EIGHT(operator-, x - y)
    EIGHT(operator*, x * y)
    EIGHT(operator/, x / y)
    EIGHT(larger, x > y ? x : y)  // y where x is not a number
#undef EIGHT
    INLINE friend double sum(const Eight& a) {
        return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
    }
    INLINE friend double largest(const Eight& a) {
        double most = a[0];
        for (Int i = 1; i < 8; i++) most = worse(most, a[i]);
        return most;
    }
};

// Symmetric positive definite equations: elements i .. i + 3 of row i, and its first diagonal.
struct Band {
    explicit Band(Int count) : n(count), s(count + 3), x(count + 3) {}

    void factorise() {
        for (Int i = 0; i < n; i++) s.at[i][4] = s.at[i][0];
        for (Int i = 0; i < n; i++) {
            double(*row)[5] = s.at + i, *own = *row;
            own[0] = 1.0 / std::max(own[0], 1e-14 * own[4]);
            for (int a = 1; a < 4; a++) {
                const double f = own[0] * own[a];
                for (int k = a; k < 4; k++) row[a][k - a] -= f * own[k];
            }
            for (int a = 1; a < 4; a++) own[a] *= own[0];
        }
    }
    void solve() {
        for (Int i = 0; i < n; i++)
            for (int a = 1; a < 4; a++) x.at[i + a] -= s.at[i][a] * x.at[i];
        for (Int a = 0; a < 3; a++) x.at[n + a] = 0.0;
        for (Int i = n - 1; i >= 0; i--) {
            x.at[i] *= s.at[i][0];
            for (int a = 3; a > 0; a--) x.at[i] -= s.at[i][a] * x.at[i + a];
        }
    }

    const Int n;
    Buffer<double[5]> s;  // with room behind the last row
    Buffer<double> x;
};

// Quintic pieces, from the first point, by powers of the parameter.
class Pieces {
public:
    struct Place {
        const Eight* powers;
        double tau, g[4];  // behind the beginning of the piece; the warp and its derivatives
    };

    Pieces(const Curve& curve, Int dofs, Int power)
        : chunks(dofs / 8 + 1), breaks(curve.count), count_(curve.count - 1), power_(curve.clock ? 1 : power),
          knots_(curve.count), powers_(count_ * 6 * chunks) {
        const double *u = of(curve.knots), *q = of(curve.points), *v = of(curve.slopes);
        Buffer<double> found(v ? 0 : 2 * curve.count * dofs);
        if (!v) join(curve, dofs, found.at), v = found.at;
        const double* a = v + curve.count * dofs;
        double size = 0.0, range = 0.0;
        for (Int i = 0; i < count_ * dofs; i++) {
            const Int k = i / dofs, d = i % dofs, e = i + dofs;
            const double h = u[k + 1] - u[k], y1 = v[i] * h, y2 = a[i] * h * h / 2.0;
            const double d0 = q[e] - q[i] - y1 - y2, d1 = v[e] * h - y1 - 2.0 * y2;
            const double d2 = a[e] * h * h / 2.0 - y2;
            const double y[] = {q[i] - q[d], y1, y2, 10.0 * d0 - 4.0 * d1 + d2,
                                -15.0 * d0 + 7.0 * d1 - 2.0 * d2, 6.0 * d0 - 3.0 * d1 + d2};
            double power = 1.0;
            for (int p = 0; p < 6; p++, power *= h) {
                powers_.at[(k * 6 + p) * chunks + d / 8].set(d % 8, y[p] / power);
                range = worse(range, std::max(y[p], -y[p]));
            }
            size = std::max({size, q[i], -q[i]}), knots_.at[k + 1] = u[k + 1] - u[0];
        }
        still = range <= 1e-12 * size;
        for (Int k = 0; k <= count_; k++)  // where the warp is at the knots
            for (double step = 0.5; step > 1e-17; step *= 0.5)
                if (warp(0, breaks.at[k] + step) * length() <= knots_.at[k]) breaks.at[k] += step;
    }

    double warp(int m, double x) const {
        const double y = x * (1.0 - x), x2 = x * x;
        const double warps[3][4] = {
            {x, 1.0, 0.0, 0.0}, {x2 * (3.0 - 2.0 * x), 6.0 * y, 6.0 - 12.0 * x, -12.0},
            {x2 * x * (10.0 + x * (6.0 * x - 15.0)), 30.0 * y * y, 60.0 * y * (1.0 - 2.0 * x),
             60.0 - 360.0 * y}};
        return warps[power_ - 1][m];
    }

    // Finds x at or behind piece k, which becomes its own.
    Place find(double x, Int& k) const {
        Place at;
        for (int m = 0; m < 4; m++) at.g[m] = length() * warp(m, x);
        while (k + 1 < count_ && at.g[0] >= knots_.at[k + 1]) k++;
        at.powers = powers_.at + k * 6 * chunks, at.tau = at.g[0] - knots_.at[k];
        return at;
    }

    // Gives the position of eight dofs and its derivatives by x or, with b and its own, by time.
    void derive(const Place& at, Int chunk, Eight* q, const double* b = nullptr) const {
        const double* g = at.g;
        for (int m = 0; m < 4; m++) q[m] = 0.0;
        for (Int p = 5; p >= 0; p--) {
            for (int m = 3; m > 0; m--) q[m] = q[m] * at.tau + q[m - 1] * m;
            q[0] = q[0] * at.tau + at.powers[p * chunks + chunk];
        }
        q[3] = q[3] * (g[1] * g[1] * g[1]) + q[2] * (3.0 * g[1] * g[2]) + q[1] * g[3];
        q[2] = q[2] * (g[1] * g[1]) + q[1] * g[2];
        q[1] = q[1] * g[1];
        if (!b) return;
        const double root = __builtin_sqrt(b[0]);
        q[3] = (q[3] * b[0] + q[2] * (1.5 * b[1]) + q[1] * (0.5 * b[2])) * root;
        q[2] = q[2] * b[0] + q[1] * (0.5 * b[1]);
        q[1] = q[1] * root;
    }

    static double* of(Address address) { return static_cast<double*>(address); }
    double length() const { return knots_.at[count_]; }

    const Int chunks;  // with a lane to spare
    const Buffer<double> breaks;
    bool still;

private:
    // Finds the derivatives of the C4 spline: the integral of the third one's square is least.
    static void join(const Curve& curve, Int dofs, double* slopes) {
        static constexpr double K[4][5] = {  // of the derivatives at both ends, and of the step
            {192, 36, 168, -24, 360}, {36, 9, 24, -3, 60}, {168, 24, 192, -36, 360},
            {-24, -3, -36, 9, -60}};
        const double *u = of(curve.knots), *q = of(curve.points), *ends = of(curve.ends);
        const Int n = 2 * curve.count, all = 4 * (curve.count - 1);
        bool given[2] = {ends != nullptr, ends != nullptr};
        for (Int i = 0; ends && i < 4 * dofs; i++) given[i / (2 * dofs)] &= ends[i] == ends[i];
        // without ends, two points have no curvature
        const bool known[] = {given[0], given[0] || (n == 4 && !given[1]), given[1], given[1]};
        auto element = [&](Int i, Int j) {
            const double r = 1.0 / (u[i / 4 + 1] - u[i / 4]);
            return K[i % 4][j] * (i % 2 ? 1.0 : r) * (j == 4 ? r * r : j % 2 ? 1.0 : r) * r;
        };
        Band band(n);
        for (Int i = 0; i < all; i++)
            for (Int j = i % 4; j < 4; j++)
                band.s.at[i / 4 * 2 + i % 4][j - i % 4] += element(i, j);
        for (Int e = 0; e < 4; e++)
            if (known[e]) band.s.at[e < 2 ? e : n - 4 + e][0] *= KNOWN;
        band.factorise();
        for (Int d = 0; d < dofs; d++) {
            std::fill_n(band.x.at, n, 0.0);
            for (Int i = 0; i < all; i++) {
                const double* from = q + i / 4 * dofs + d;
                band.x.at[i / 4 * 2 + i % 4] += element(i, 4) * (from[dofs] - from[0]);
            }
            for (Int e = 0; e < 4; e++) {
                const Int at = e < 2 ? e : n - 4 + e;
                const double value = given[e / 2] ? ends[e * dofs + d] : 0.0;
                if (known[e]) band.x.at[at] = value * band.s.at[at][4];
            }
            band.solve();
            for (Int i = 0; i < n; i++)
                slopes[(i % 2 * curve.count + i / 2) * dofs + d] = band.x.at[i];
        }
    }

    const Int count_, power_;
    Buffer<double> knots_;
    Buffer<Eight> powers_;
};

// b and its derivatives at a point of the grid, and behind it.
struct Cubic {
    double b[4];

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
inline double pass(const double* x, const Cubic* b, Int points, double* times) {
    times[0] = 0.0;
    for (Int p = 0; p + 1 < points; p++) times[p + 1] = times[p] + b[p].time(x[p + 1] - x[p]);
    return times[points - 1];
}

// Gives y at increasing places.
inline void interpolate(const double* at, const double* x, const double* y, Int n, double* out) {
    for (Int i = 0, k = 0; i < n; i++) {
        while (k + 2 < n && at[i] >= x[k + 1]) k++;
        out[i] = y[k] + (y[k + 1] - y[k]) / (x[k + 1] - x[k]) * (at[i] - x[k]);
    }
}

// Finds b of one path.
class Timer {
    enum { SOLVED, ROUGH, UNIFORM, STILL, ODD, BEYOND };  // as in fastest.py
    struct Point { double w, b, fall, e[3][4]; };  // fall: b^(-3/2) / 2; e: splines, derivatives
    struct Bound { Eight unit, side[2], live[2]; };       // of a row, anywhere; sides: up, down
    struct Row { Eight c[3], z[2], dz[2], inverse[2]; };  // at a point; z: multipliers

public:
    Timer(const Timings& job, Curve& curve, const Pieces& path)
        : dofs_(job.dofs), curve_(curve), path_(path) {
        for (Int r = 0; r < rows_; r++) bounds_.at[r].side[0] = bounds_.at[r].side[1] = KNOWN;
        bounds_.at[dofs_ / 8].side[0].set(dofs_ % 8, 1.0);
        bounds_.at[dofs_ / 8].live[0].set(dofs_ % 8, 1.0);
        for (Int i = 0; i < 6 * dofs_; i++) {
            const Int side = i % 2, q = i / 2 / dofs_, d = i / 2 % dofs_, chunk = d / 8;
            const double limits[] = {Pieces::of(job.upper)[i / 2], -Pieces::of(job.lower)[i / 2]};
            const double least = std::min(limits[0], limits[1]), own = limits[side];
            inverse_.at[(2 * q + side) * path.chunks + chunk].set(d % 8, 1.0 / own);
            if (q == 0 || own == NONE) continue;
            Bound& bound = bounds_.at[(q - 1) * path.chunks + chunk];
            bound.unit.set(d % 8, 1.0 / least), bound.side[side].set(d % 8, own / least);
            bound.live[side].set(d % 8, 1.0), count_++;
        }
    }

    void run(double tolerance) {
        place_grid();
        for (Int p = 0; p < points_; p++) now_.at[p].b[0] = 1.0;
        double factor = check();
        const double pace = path_.length();
        const bool odd = !(factor > 1e-90 && factor < 1e90), beyond = moves_ && !(factor < pace);
        curve_.state = path_.still ? STILL : odd ? ODD : beyond ? BEYOND : UNIFORM;
        if (curve_.state != UNIFORM) return;
        if (moves_) factor = pace;
        const double margin = moves_ ? 1.0 : 1.0 + 1e-11;
        curve_.uniform = factor * margin;
        scale_ = 1.0 / (factor * factor);
        take(scale_);
        std::fill_n(tight_.at, 3 * points_, 1.0);
        std::fill_n(c_.at, n_, 0.8);
        double took = factor;
        bool done = true;
        for (int turn = 0; turn < 4 && count_ > 1; turn++) {
            if (turn < 2) place_basis();
            fill();
            double total = begin();
            if (moves_ && total == NONE) break;
            if (!(total < NONE)) std::fill_n(c_.at, n_, 0.8), total = begin();
            const double gap = moves_ || turn == 0 ? 1.0 : turn == 1 ? 0.1 : 0.01;
            done = solve(turn ? tolerance : 10.0 * tolerance, gap * total);
            read();
            double over = worse(check(), 1e-3), part = 1.0;
            for (Int i = 0; turn && i < 3 * points_; i++)  // of both points of a step
                tight_.at[i] *= std::max({1.0, shares_.at[i], shares_.at[std::max(i - 1, Int(0))]});
            for (int k = 14; moves_ && over > 1.0 && k > 0; k--) {  // nearer to the plan's own pace
                const double less = (1.0 - 1.0 / static_cast<double>(1 << k)) / part;
                for (Int i = 0; i < 4 * points_; i++) now_.at[i / 4].b[i % 4] *= less;
                for (Int p = 0; p < points_; p++) now_.at[p].b[0] += (1.0 - less) * scale_;
                part *= less, over = check();
            }
            if (moves_) over = over > 1.0 ? NONE : over / over;
            for (Int i = 0; i < 4 * points_; i++) now_.at[i / 4].b[i % 4] /= over * over;
            const double time = pass(x_.at, now_.at, points_, times_.at);
            if (time < took) took = time, take(1.0);
            if (turn == 0) regrid();
        }
        for (Int i = 0; i < 4 * points_; i++) best_.at[i / 4].b[i % 4] /= margin * margin;
        curve_.duration = pass(best_x_.at, best_.at, points_, times_.at);
        if (took < factor) curve_.state = done ? SOLVED : ROUGH;
        for (Int p = 0; p < points_; p++) {
            double* to = Pieces::of(curve_.solution) + p;
            to[0] = best_x_.at[p], to[points_] = best_.at[p].b[0];
            to[2 * points_] = best_.at[p].b[2];
        }
    }

private:
    // Keeps what is there as the best.
    void take(double scale) {
        for (Int p = 0; p < points_; p++)
            for (int m = 0; m < 4; m++) best_.at[p].b[m] = scale * now_.at[p].b[m];
        std::copy_n(x_.at, points_, best_x_.at);
    }

    // Even, but nearer to an end than 8 steps an eighth of the distance from it apart.
    void place_grid() {
        const Int half = curve_.intervals;
        const double step = 0.5 / (static_cast<double>(half) - 22.18070977791825);  // 8 log(16)
        double x = step / 2.0;
        for (Int p = 0; p <= half; p++) {
            const double far = 0.5 - static_cast<double>(half - p) * step;
            x_.at[p] = p < 8 ? static_cast<double>(p) * step / 16.0 : p < 31 ? x : far;
            if (p >= 8) x *= 1.1331484530668263;  // exp(1/8)
            x_.at[2 * half - p] = 1.0 - x_.at[p];
        }
        std::copy_n(x_.at, points_, grid_.at);
    }

    Int knot(Int i) const { return i <= 0 ? 0 : i >= n_ - 1 ? points_ - 1 : END + 2 * (i - 1); }
    Int first(Int p) const { return std::min(std::max((p - END) / 2, Int(0)), n_ - 4); }

    // Cubic B-splines at the points, of the coefficients from ``first`` on; b'' is 0 at both ends.
    void place_basis() {
        const double* x = x_.at;
        // knots beyond the ends are as far apart as those next to them
        auto at = [&](Int j) {
            const Int out = j < 0 ? j : std::max(j - n_ + 1, Int(0)), i = j < 0 ? 1 : n_ - 1;
            return x[knot(j)] + static_cast<double>(out) * (x[knot(i)] - x[knot(i - 1)]);
        };
        for (Int p = 0; p < points_; p++) {
            const Int k = p < END ? 0 : std::min((p - END) / 2 + 1, n_ - 2);
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
            for (int end = 0; end < 2; end++) {  // the coefficient beyond, by the next two
                const Int inner = end ? n_ - 3 : 1, outer = end ? n_ - 2 : 0;
                if (k != outer) continue;
                const double one = at(outer + 1) - at(outer), two = at(inner + 1) - at(inner);
                const double r = 3.0 * one / (2.0 * one + two);
                for (int o = 0; o < 3; o++) {
                    const double out = e[end ? 3 : 0][o];
                    e[1 + end][o] += (1.0 + r) * out, e[2 - end][o] -= r * out;
                    for (int m = 0; m < 3; m++) e[end ? 3 - m : m][o] = e[end ? 2 - m : m + 1][o];
                    e[end ? 0 : 3][o] = 0.0;
                }
            }
            for (int m = 0; m < 12; m++) point_.at[p].e[m % 3][m / 3] = e[m / 3][m % 3];
            point_.at[p].w = (x[std::min(p + 1, points_ - 1)] - x[std::max(p - 1, Int(0))]) / 2.0;
        }
    }

    // What limits b at the points.
    void fill() {
        Int k = 0;
        for (Int p = 0; p < points_; p++) {
            const Pieces::Place at = path_.find(x_.at[p], k);
            const double *tight = tight_.at + p, a = scale_ * tight[points_];
            const double j = scale_ * __builtin_sqrt(scale_) * tight[2 * points_];
            double most = 0.0;
            Row* rows = row_.at + p * rows_;
            for (Int chunk = 0; chunk < path_.chunks; chunk++) {
                Eight q[4], *inverse = inverse_.at + chunk;
                path_.derive(at, chunk, q);
                const Eight up = q[1] * inverse[0], down = q[1] * inverse[path_.chunks];
                most = worse(most, largest(larger(up, Eight() - down)));
                for (int m = 1; m < 3; m++) {
                    const Int r = (m - 1) * path_.chunks + chunk;
                    const Eight unit = bounds_.at[r].unit * (m == 1 ? a : j);
                    rows[r].c[0] = q[m + 1] * unit, rows[r].c[1] = q[m] * (m - 0.5) * unit;
                    if (m == 2) rows[r].c[2] = q[1] * 0.5 * unit;
                }
            }
            most *= most * scale_ * tight[0] * tight[0];
            rows[dofs_ / 8].c[0].set(dofs_ % 8, std::max(most, 1e-8));
        }
    }

    // Gives a spline and its derivatives at a point.
    void evaluate(const double* c, Int p, double* b) const {
        for (int o = 0; o < 3; o++) {
            b[o] = 0.0;
            for (int m = 0; m < 4; m++) b[o] += point_.at[p].e[o][m] * c[first(p) + m];
        }
    }

    static Eight combine(const Eight* c, const double* b) {
        return c[0] * b[0] + c[1] * b[1] + c[2] * b[2];
    }

    // Scales b down as far as it takes to be within limits; returns the objective, or where a
    // moving path is not.
    double begin() {
        if (moves_) std::fill_n(c_.at, n_, 1.0);
        double most[2] = {}, total = 0.0, b[3];
        for (Int p = 0; p < points_; p++) {
            evaluate(c_.at, p, b);
            const double root = __builtin_sqrt(b[0]);
            for (Int r = 0; r < rows_; r++) {
                const Eight l = combine(row_.at[p * rows_ + r].c, b), *side = bounds_.at[r].side;
                double& own = most[r >= jerks_];
                own = std::max(own, largest(larger(l / side[0], Eight() - l / side[1])) *
                                        (r < jerks_ ? 1.0 : root));
            }
            total += point_.at[p].w / root;
        }
        const double root = __builtin_cbrt(most[1]);
        const double by = std::max(1.05 * std::max(most[0], root * root), 1.0);
        if (moves_) return by < 1.05 ? total : NONE;
        for (Int i = 0; i < n_; i++) c_.at[i] /= by;
        return total * __builtin_sqrt(by);
    }

    // Moves the coefficients to where the objective is least; returns whether it got there.
    bool solve(double tolerance, double gap) {
        const double m = static_cast<double>(count_ * points_);
        double old = 0.0, sigma = 0.3, step = 0.0;
        for (int turn = 1;; turn++) {
            curve_.iterations++;
            assemble(turn == 1 ? gap / m : 0.0, step);
            const double change = __builtin_fabs(total_ / old - 1.0);
            const bool done = turn > 1 && gap_ / total_ < tolerance && change < tolerance / 4.0;
            if (done || turn == MOST_TURNS || !(total_ < NONE)) return done;
            old = total_;
            const double mu = sigma * gap_ / m;
            for (Int i = 0; i < n_; i++) band_.x.at[i] += mu * pull_.at[i];
            for (Int i = 0; i < 4; i++) {
                const Int at = i < 2 ? i : n_ - 4 + i;
                if (curve_.held[i / 2]) band_.s.at[at][0] *= KNOWN, band_.x.at[at] = 0.0;
            }
            band_.factorise();
            band_.solve();
            double most[] = {1e-9, 1e-9};
            direct(mu, most);
            const double own = std::min(1.0, 0.99 / most[0]);
            step = std::min(1.0, 0.99 / most[1]);
            for (Int i = 0; i < n_; i++) c_.at[i] += own * band_.x.at[i];
            const double left = 1.0 - std::min(own, step);
            sigma = std::min(std::max(left * left, 0.08), 0.8);
        }
    }

    // Sums up the equations, after the multipliers' step; ``gap``: what each begins with, or 0.
    void assemble(double gap, double step) {
        std::memset(band_.s.at, 0, bytes<double[5]>(n_ + 3));
        std::fill_n(band_.x.at, n_, 0.0);
        std::fill_n(pull_.at, n_, 0.0);
        total_ = gap_ = 0.0;
        for (Int p = 0; p < points_; p++) {
            Point& point = point_.at[p];
            double b[3];
            evaluate(c_.at, p, b);
            const double root = 1.0 / __builtin_sqrt(b[0]), w = point.w;
            const double fall = 0.5 * root * root * root;
            Eight h[6], f[3], used, spent;
            for (Int r = 0; r < rows_; r++) {
                Row& row = row_.at[p * rows_ + r];
                const double grow = r < jerks_ ? 1.0 : root, shrink = r < jerks_ ? 0.0 : fall;
                const Eight* c = row.c, l = combine(c, b);
                Eight cross, both, pull;
                for (int i = 0; i < 2; i++) {
                    const double sign = i ? 1.0 : -1.0;
                    const Eight side = bounds_.at[r].side[i], slack = side * grow + l * sign;
                    const Eight inverse = row.inverse[i] = bounds_.at[r].live[i] / slack;
                    row.z[i] = gap > 0.0 ? inverse * gap : row.z[i] + row.dz[i] * step;
                    const Eight z = row.z[i], k = z * inverse, own = c[0] * sign - side * shrink;
                    if (r >= jerks_) spent += z * side;
                    used += z * slack, h[0] += k * own * own, f[0] += inverse * own;
                    cross += k * own * sign, both += k, pull += inverse * sign;
                }
                h[1] += cross * c[1], h[2] += cross * c[2], h[3] += both * c[1] * c[1];
                h[4] += both * c[1] * c[2], h[5] += both * c[2] * c[2];
                f[1] += pull * c[1], f[2] += pull * c[2];
            }
            const double bend = 1.5 * std::max(w - sum(spent), 0.1 * w) * fall * root * root;
            double s[6], g[3];
            for (int i = 0; i < 6; i++) s[i] = sum(h[i]) + (i ? 0.0 : bend);
            const double(&e)[3][4] = point.e;
            for (Int q = 0, to = first(p); q < 4; q++, to++) {
                for (int i = 0; i < 3; i++)
                    g[i] = s[i] * e[0][q] + s[i ? i + 2 : 1] * e[1][q] + s[i ? i + 3 : 2] * e[2][q];
                for (Int r = q; r < 4; r++)
                    band_.s.at[to][r - q] += e[0][r] * g[0] + e[1][r] * g[1] + e[2][r] * g[2];
                band_.x.at[to] += e[0][q] * w * fall;
                pull_.at[to] += e[0][q] * sum(f[0]) + e[1][q] * sum(f[1]) + e[2][q] * sum(f[2]);
            }
            point.b = b[0], point.fall = fall;
            total_ += w * root, gap_ += sum(used);
        }
    }

    // Finds the multipliers' changes; raises ``most`` to the largest shares that steps of 1 use up.
    void direct(double mu, double* most) {
        Eight used[2];
        for (Int p = 0; p < points_; p++) {
            const Point& point = point_.at[p];
            double b[3];
            evaluate(band_.x.at, p, b);
            most[0] = std::max(most[0], -b[0] / point.b);
            for (Int r = 0; r < rows_; r++) {
                Row& row = row_.at[p * rows_ + r];
                const Eight l = combine(row.c, b);
                for (int i = 0; i < 2; i++) {
                    const double fall = r < jerks_ ? 0.0 : point.fall * b[0];
                    const Eight less = bounds_.at[r].side[i] * fall + l * (i ? -1.0 : 1.0);
                    row.dz[i] = row.inverse[i] * (row.z[i] * less + mu) - row.z[i];
                    used[0] = larger(less * row.inverse[i], used[0]);
                    used[1] = larger(Eight() - row.dz[i] / row.z[i], used[1]);
                }
            }
        }
        for (int k = 0; k < 2; k++) most[k] = std::max(most[k], largest(used[k]));
    }

    // Reads b off its coefficients.
    void read() {
        for (Int p = points_ - 1; p >= 0; p--) {
            double *b = now_.at[p].b, *next = now_.at[p + 1].b;
            evaluate(c_.at, p, b);
            for (int o = 0; o < 3; o++) b[o] *= scale_;
            if (p + 1 < points_) b[3] = (next[2] - b[2]) / (x_.at[p + 1] - x_.at[p]);
        }
    }

    // Finds the largest share of each limit in each step of the grid, at points between the path's
    // breaks, and between those an eighth of the second difference more. Returns the factor of time
    // that brings all to 1.
    double check() {
        double worst[3] = {};
        std::fill_n(shares_.at, 3 * points_, 0.0);
        double from = 0.0, to;
        for (Int p = 0, k = 0, next = 0; p + 1 < points_; p += !(to < x_.at[p + 1]), from = to) {
            Pieces::Place places[CHECKED];
            Cubic b[CHECKED];
            while (path_.breaks.at[next] <= from && next + 1 < curve_.count) next++;
            to = path_.breaks.at[next];
            to = to > from && to < x_.at[p + 1] ? to : x_.at[p + 1];
            for (int i = 0; i < CHECKED; i++) {  // not where the jerk may jump
                const double part = i ? std::min(i / (CHECKED - 1.0), 1.0 - 1e-9) : 1e-9;
                const double x = from + part * (to - from);
                places[i] = path_.find(x, k), b[i] = now_.at[p].after(x - x_.at[p]);
            }
            for (Int chunk = 0; chunk < path_.chunks; chunk++) {
                Eight q[CHECKED][4];
                for (int i = 0; i < CHECKED; i++) path_.derive(places[i], chunk, q[i], b[i].b);
                for (int m = 0; m < 3; m++) {
                    const Eight* inverse = inverse_.at + 2 * m * path_.chunks + chunk;
                    Eight sides[2] = {-NONE, -NONE}, bulge, odd;
                    for (int i = 0; i < CHECKED; i++) {
                        const Eight own = q[i][m + 1], less = Eight() - own;
                        sides[0] = larger(own, sides[0]), sides[1] = larger(less, sides[1]);
                        odd += own - own;
                        if (i < 2) continue;
                        const Eight bend = own - q[i - 1][m + 1] * 2.0 + q[i - 2][m + 1];
                        bulge = larger(larger(bend, Eight() - bend), bulge);
                    }
                    for (int i = 0; i < 2; i++) {
                        const Eight most = sides[i] + bulge * 0.125;
                        const Eight all = most * inverse[i * path_.chunks] + odd;
                        double& share = shares_.at[m * points_ + p];
                        share = worse(share, largest(all)), worst[m] = worse(worst[m], share);
                    }
                }
            }
        }
        return worse(worse(worst[0], __builtin_sqrt(worst[1])), __builtin_cbrt(worst[2]));
    }

    // Places the points where time passes in the best so far, and a tenth of them evenly.
    void regrid() {
        double *t = times_.at, *x = x_.at, *old = best_x_.at;
        const double total = pass(old, best_.at, points_, t);
        for (Int p = 0; p < points_; p++) t[p] = 0.9 * (t[p] / total) + 0.1 * old[p];
        interpolate(grid_.at, t, old, points_, x);
        for (int i = 0; i < 4; i++) {
            double before = 0.0;
            for (Int p = 1; p + 1 < points_; p++) {
                const double own = x[p];
                x[p] = (x[p + 1] + 2.0 * own + before) / 4.0, before = own;
            }
        }
        for (Int p = 0; p < points_; p++) t[p] = best_.at[p].b[0] / scale_;
        interpolate(x, old, t, points_, tight_.at);
        for (Int i = 0; i < n_; i++) c_.at[i] = tight_.at[knot(i)];
        std::fill_n(tight_.at, points_, 1.0);
    }

    const Int dofs_;
    Curve& curve_;
    const Pieces& path_;
    const Int points_ = 2 * curve_.intervals + 1, n_ = curve_.intervals - END + 3;
    const Int rows_ = 2 * path_.chunks, jerks_ = path_.chunks;  // the first have the speed's limit
    const bool moves_ = curve_.held[0] || curve_.held[1];
    Int count_ = 1;  // limits at a point
    double scale_ = 1.0, total_ = 0.0, gap_ = 0.0;
    Buffer<double> grid_{points_}, x_{points_}, best_x_{points_}, times_{points_};
    Buffer<double> tight_{3 * points_}, shares_{3 * points_}, c_{n_}, pull_{n_};
    Buffer<Cubic> now_{points_}, best_{points_};
    Buffer<Point> point_{points_};
    Buffer<Row> row_{points_ * rows_};
    Buffer<Bound> bounds_{rows_};
    Buffer<Eight> inverse_{6 * path_.chunks};
    Band band_{n_};
};

// Samples a path that was timed, at increasing times.
inline void sample(const Curve& curve, Int dofs, const Pieces& path) {
    const Int points = 2 * curve.intervals + 1;
    const double *x = Pieces::of(curve.solution), *t = Pieces::of(curve.times);
    Buffer<double> times(points);
    Buffer<Cubic> b(points);
    for (Int p = 0; p + 1 < points; p++) {
        const double *v = x + points + p, *s = v + points, h = x[p + 1] - x[p];
        const double slope = (v[1] - v[0]) / h - h * (2.0 * s[0] + s[1]) / 6.0;
        b.at[p] = {{v[0], slope, s[0], (s[1] - s[0]) / h}};
    }
    pass(x, b.at, points, times.at);
    for (Int s = 0, p = 0, k = 0; s < curve.samples; s++) {
        while (p + 2 < points && t[s] >= times.at[p + 1]) p++;
        const double h = x[p + 1] - x[p], left = t[s] - times.at[p];
        double tau = h * (left / (times.at[p + 1] - times.at[p]));
        for (int i = 0; i < 7; i++) {  // Newton's method
            tau = std::min(std::max(tau, 0.0), h);
            if (i < 6) tau += (left - b.at[p].time(tau)) * __builtin_sqrt(b.at[p].after(tau).b[0]);
        }
        const Pieces::Place at = path.find(std::min(x[p] + tau, 1.0), k);
        for (Int d = 0; d < dofs; d += 8) {
            Eight q[4];
            path.derive(at, d / 8, q, b.at[p].after(tau).b);
            for (Int i = d; i < std::min(d + 8, dofs); i++)
                for (Int m = 0; m < 4; m++)
                    Pieces::of(curve.rows)[(m * curve.samples + s) * dofs + i] =
                        q[m][i - d] + (m ? 0.0 : Pieces::of(curve.points)[i]);
        }
    }
}

void time_curve(const Timings& job, Curve& curve) {
    const Pieces path(curve, job.dofs, job.power);
    if (curve.times) sample(curve, job.dofs, path);
    else Timer(job, curve, path).run(job.power == 3 ? job.tolerance : 0.01 * job.tolerance);
}

}  // namespace LEVEL
