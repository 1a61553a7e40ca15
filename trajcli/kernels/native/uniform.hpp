// The cascade and its transpose for float data in steps of equal length, several times faster
// than the general way and as exact. Included by each level*.cpp after cascade.hpp.
//
// Rows are taken in blocks. Within a block the data themselves are summed and differenced, not
// yet multiplied by any step: floats have 24 bits and doubles 53, so these sums are nearly always
// exact, and the processor's inexact flag says when one is not. Then the tile is computed again
// in pairs. The powers of dt come in once for each result, and the state at the block's start,
// carried in pairs, as a polynomial in the number of steps k:
//     x_m(k) = Σ_r C_r(k) dtʳ x_{m+r}(0) + dtⁿ S_n(k),  C_0, C_1, C_2 = 1, k, k(k+1)/2,
// where n sums of the action lie between it and x_m, and S_n is the n-fold running sum.
// Where nothing was inexact, pairs give the same bits: which way a tile went cannot be seen.

namespace TRAJCLI_LEVEL {

constexpr int BLOCK = 16;  // rows: BLOCK_ROWS in program.py; more would outgrow 53 bits

// C_r(k) for k = 0..BLOCK: the ways to take r steps back, in order, in k.
struct StepsTaken {
    double of[3][BLOCK + 1];

    constexpr StepsTaken() : of() {
        for (int k = 0; k <= BLOCK; k++) of[0][k] = 1, of[1][k] = k, of[2][k] = k * (k + 1) / 2;
    }
};
constexpr StepsTaken STEPS_TAKEN;

inline Quiet steps_taken(int r, std::int64_t k) { return quiet(all(STEPS_TAKEN.of[r][k])); }

#if defined(__SSE2__)
inline unsigned flags() { return _mm_getcsr(); }
inline void set_flags(unsigned value) { _mm_setcsr(value); }
constexpr unsigned INEXACT = _MM_EXCEPT_INEXACT;
#else
inline unsigned flags() { return std::fetestexcept(FE_INEXACT); }
inline void set_flags(unsigned value) {
    if (!(value & FE_INEXACT)) std::feclearexcept(FE_INEXACT);
}
constexpr unsigned INEXACT = FE_INEXACT;
#endif

// Calls the compiler cannot see into: arithmetic stays on its side of them.
__attribute__((noinline)) inline void forget_inexact() {
    asm volatile("" ::: "memory");
    if (flags() & INEXACT) set_flags(flags() & ~INEXACT);
}

__attribute__((noinline)) inline bool was_inexact() {
    asm volatile("" ::: "memory");
    return flags() & INEXACT;
}

#if defined(TRAJCLI_AVX2)
inline __m128i first_lanes(int lanes) {
    static const int ones_and_zeros[2 * W] = {-1, -1, -1, -1};
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(ones_and_zeros + W - lanes));
}
#endif

// Floats of the first ``lanes`` lanes, zero in the others; nothing beyond them is read.
inline Vec load_some(const float* from, int lanes) {
#if defined(TRAJCLI_AVX512)
    return (Vec)_mm512_cvtps_pd(_mm256_maskz_loadu_ps((__mmask8)((1u << lanes) - 1), from));
#elif defined(TRAJCLI_AVX2)
    return (Vec)_mm256_cvtps_pd(_mm_maskload_ps(from, first_lanes(lanes)));
#else
    if (lanes == W) return load(from);
    float some[W] = {};
    for (int l = 0; l < lanes; l++) some[l] = from[l];
    return load(some);
#endif
}

// The first ``lanes`` lanes as ``Out``; nothing beyond them is written.
template <class Out>
inline void store_some(Out* to, Quiet x, int lanes) {
#if defined(TRAJCLI_AVX512)
    if (sizeof(Out) == sizeof(float)) {
        const __m256 narrow = _mm512_cvt_roundpd_ps((__m512d)x.v, TRAJCLI_SILENT);
        _mm256_mask_storeu_ps(reinterpret_cast<float*>(to), (__mmask8)((1u << lanes) - 1), narrow);
        return;
    }
#elif defined(TRAJCLI_AVX2)
    if (sizeof(Out) == sizeof(float)) {
        const __m128 narrow = _mm256_cvtpd_ps((__m256d)x);
        _mm_maskstore_ps(reinterpret_cast<float*>(to), first_lanes(lanes), narrow);
        return;
    }
#endif
    Out some[W];
    store(some, x);
    std::memcpy(to, some, lanes * sizeof(Out));
}

// Sums and differences of numbers that are doubles, or pairs where doubles do not suffice.
inline Vec plus(Vec a, Vec b) { return a + b; }
inline Vec minus(Vec a, Vec b) { return a - b; }
inline Pair plus(Pair a, Pair b) { return add(a, b); }
inline Pair minus(Pair a, Pair b) { return add(a, negative(b)); }
inline void take(Vec& to, Pair from) { to = from.hi; }
inline void take(Pair& to, Pair from) { to = from; }
inline Pair as_pair(Vec x) { return exact(x); }
inline Pair as_pair(Pair x) { return x; }
inline Vec collapsed(Vec x) { return x; }
inline Vec collapsed(Pair x) { return rounded<true>(x); }

inline QuietPair quiet(Pair x) { return {quiet(x.hi), quiet(x.lo)}; }
inline Pair plain_pair(QuietPair x) { return {plain(x.hi), plain(x.lo)}; }

// A sum that keeps infinities: their low part would be no number.
inline QuietPair carried(QuietPair a) {
    QuietPair sum = settled(a);
    Vec hi = plain(sum.hi), lo = plain(sum.lo);
    Mask infinite = !(lo == lo);
    return {quiet(infinite ? plain(a.hi) : hi), quiet(infinite ? Vec{} : lo)};
}

// Powers of dt and of 1/dt, n = 0..3.
struct Powers {
    QuietPair dt[4];
    Quiet inverse[4];
    Pair once_inverse[4];

    explicit Powers(Vec step) {
        Pair up = exact(all(1.0)), down = up, inverse_step = reciprocal(step);
        for (int n = 0; n < 4; n++) {
            dt[n] = quiet(up), once_inverse[n] = down, inverse[n] = quiet(down.hi);
            up = settled(multiply(step, up));
            down = settled(multiply(inverse_step, down));
        }
    }
};

// What is carried from block to block, a lane per dof: the state in pairs, and the rows before.
template <class Kernel>
struct Carried {
    Pair state[Kernel::ORDER + 1];  // one more than there is: no array is empty
    Pair before[Kernel::BEFORE + 1];
};

// A difference that was once divided by a power of dt: what is not rounding comes back.
inline Pair unscaled(Pair x, Pair power) {
    Pair product = settled(multiply(x, power));
    Mask tiny = (product.lo < 0.0 ? -product.lo : product.lo) * 0x1p90 <=
                (product.hi < 0.0 ? -product.hi : product.hi);
    return {product.hi, tiny ? Vec{} : product.lo};
}

// Rows forward: the action's sums go down, its differences up.
template <int ORDER_>
struct UniformForward {
    static constexpr int ORDER = ORDER_, SUMS = ORDER, BEFORE = 3 - ORDER;
    static constexpr bool backwards = false;
    static constexpr bool reads(int m) { return m == ORDER; }

    // e: the sums to be multiplied by powers of dt, then the differences by those of 1/dt
    template <class N>
    static inline void exact_row(const N in[4], N* sum, N* before, N e[3]) {
        N above = in[ORDER], difference = in[ORDER];
        for (int n = 0; n < SUMS; n++) above = e[n] = sum[n] = plus(sum[n], above);
        for (int n = 0; n < BEFORE; n++) {
            N next = minus(difference, before[n]);
            before[n] = difference;
            difference = e[SUMS + n] = next;
        }
    }

    // The state's share of a block's rows.
    struct Line {
        Quiet term[3][3], low;

        Line(const QuietPair* state, const Powers& powers) {
            for (int m = 0; m < ORDER; m++)
                for (int r = 0; r < ORDER - m; r++)
                    term[m][r] = powers.dt[r].hi * state[m + r].hi;
            low = ORDER ? state[ORDER - 1].lo : quiet(Vec{});
        }
    };

    template <class Out>
    static inline void scale_row(const Quiet e[3], std::int64_t k, const Line& line,
                                 const Powers& powers, const Vec[4], std::int64_t at,
                                 Out* const out[4], int) {
        for (int m = 0; m < ORDER; m++) {
            if (!out[m]) continue;
            const int n = ORDER - m;
            Quiet x = line.term[m][0];
            for (int r = 1; r < n; r++)
                x = multiply_add(steps_taken(r, k), line.term[m][r], x);
            x = multiply_add(powers.dt[n].hi, e[n - 1], x);
            store(out[m] + at, n == 1 ? x + line.low : x);
        }
        for (int n = 1; n <= BEFORE; n++)
            if (out[ORDER + n]) store(out[ORDER + n] + at, powers.inverse[n] * e[SUMS + n - 1]);
    }

    template <class Carried>
    static inline void begin(Carried& to, const Pair x[4], const Powers& powers) {
        for (int m = 0; m < ORDER; m++) to.state[m] = x[m];
        for (int n = 0; n < BEFORE; n++)
            to.before[n] = unscaled(x[ORDER + n], plain_pair(powers.dt[n]));
    }

    template <class Carried>
    static inline void end(const Carried& from, Pair x[4], const Powers& powers) {
        for (int m = 0; m < ORDER; m++) x[m] = from.state[m];
        for (int n = 0; n < 4 - ORDER; n++)
            x[ORDER + n] = n < BEFORE ? multiply(powers.once_inverse[n], from.before[n]) : Pair{};
    }

    static inline void rebase(QuietPair* state, const QuietPair* sum, std::int64_t k,
                              const Powers& powers) {
        for (int m = 0; m < ORDER; m++) {
            const int n = ORDER - m;
            QuietPair x = add(state[m], multiply(powers.dt[n], sum[n - 1]));
            for (int r = 1; r < n; r++)
                x = add(x, multiply(steps_taken(r, k),
                                    multiply(powers.dt[r], state[m + r])));
            state[m] = carried(x);
        }
    }
};

// Rows backward: state holds what later rows ask of the quantities below the action.
template <int ORDER_>
struct UniformAdjoint {
    static constexpr int ORDER = ORDER_;
    static constexpr int SUMS = ORDER * (ORDER + 1) / 2, BEFORE = (3 - ORDER) * (4 - ORDER) / 2;
    static constexpr bool backwards = true;
    static constexpr bool reads(int) { return true; }

    // Sums of upstream m: ORDER − m of them, one upon the other; then differences of those above.
    static constexpr int first_sum(int m) { return m * ORDER - m * (m - 1) / 2; }

    template <class N>
    static inline void exact_row(const N in[4], N* sum, N* before, N e[3]) {
        for (int m = 0; m < ORDER; m++) {
            N above = in[m];
            for (int n = 0; n < ORDER - m; n++)
                above = sum[first_sum(m) + n] = plus(sum[first_sum(m) + n], above);
            e[m] = above;
        }
        for (int i = 1, at = 0; i <= 3 - ORDER; i++) {
            N difference = in[ORDER + i];
            for (int n = 0; n < i; n++, at++) {
                N next = minus(difference, before[at]);
                before[at] = difference;
                difference = next;
            }
            e[ORDER + i - 1] = difference;
        }
    }

    struct Line {
        Quiet term[3];

        Line(const QuietPair* state, const Powers& powers) {
            for (int m = 0; m < ORDER; m++) term[m] = powers.dt[ORDER - m].hi * state[m].hi;
        }
    };

    template <class Out>
    static inline void scale_row(const Quiet e[3], std::int64_t k, const Line& line,
                                 const Powers& powers, const Vec in[4], std::int64_t at,
                                 Out* const out[4], int lanes) {
        Quiet x = quiet(in[ORDER]);
        for (int m = 0; m < ORDER; m++) {
            x = multiply_add(powers.dt[ORDER - m].hi, e[m], x);
            const int r = ORDER - 1 - m;
            x = r ? multiply_add(steps_taken(r, k), line.term[m], x) : x + line.term[m];
        }
        for (int i = 1; i <= 3 - ORDER; i++)
            x = multiply_add(powers.inverse[i], e[ORDER + i - 1], x);
        // rows come from last to first: the next must not be written over
        store_some(out[ORDER] + at, x, lanes);
    }

    template <class Carried>
    static inline void begin(Carried& to, const Pair x[4], const Powers&) {
        for (int m = 0; m < ORDER; m++) to.state[m] = x[m];
        for (int n = 0; n < BEFORE; n++) to.before[n] = Pair{};
    }

    // The first row's differences are the state's too, with the other sign.
    template <class Carried>
    static inline void end(const Carried& from, Pair x[4], const Powers& powers) {
        for (int m = 0; m < 4; m++) x[m] = m < ORDER ? from.state[m] : Pair{};
        for (int i = 1, at = 0; i <= 3 - ORDER; i++)
            for (int n = 0; n < i; n++, at++) {
                Pair& to = x[ORDER + i - 1 - n];
                to = add(to, negative(multiply(powers.once_inverse[n + 1], from.before[at])));
            }
    }

    static inline void rebase(QuietPair* state, const QuietPair* sum, std::int64_t k,
                              const Powers& powers) {
        for (int m = ORDER - 1; m >= 0; m--) {
            QuietPair x = add(state[m], sum[first_sum(m)]);
            for (int j = 0; j < m; j++) {
                QuietPair steps = multiply(steps_taken(m - j, k), state[j]);
                QuietPair inner = add(steps, sum[first_sum(j) + m - j]);
                x = add(x, multiply(powers.dt[m - j], inner));
            }
            state[m] = carried(x);
        }
    }
};

// Rows of one vector of lanes.
struct UniformTile {
    const float* in[4];
    std::int64_t in_row[4];
    std::int64_t ahead;  // from here to the rows that come next: the processor does not foresee them
    int lanes;
    std::int64_t count, out_row;

    template <class Kernel>
    inline void row(std::int64_t t, Vec x[4]) const {
        for (int m = 0; m < 4; m++) {
            if (!Kernel::reads(m)) continue;
            const float* from = in[m] + t * in_row[m];
            __builtin_prefetch(from + ahead, 0, 2);
            x[m] = load_some(from, lanes);
        }
    }

    template <class Kernel>
    std::int64_t place(std::int64_t i) const {
        return Kernel::backwards ? count - 1 - i : i;
    }
};

// Sums and differences as they are formed, in numbers N.
template <class Kernel, class N>
struct Forming {
    N sum[6], before[6];

    explicit Forming(const Carried<Kernel>& carried) {
        for (int n = 0; n < Kernel::BEFORE; n++) take(before[n], carried.before[n]);
    }

    inline void begin_block() {
        for (int n = 0; n < Kernel::SUMS; n++) take(sum[n], Pair{});
    }

    inline void row(const Vec x[4], Quiet e[3]) {
        N in[4], found[3];
        for (int m = 0; m < 4; m++)
            if (Kernel::reads(m)) take(in[m], exact(x[m]));
        Kernel::exact_row(in, sum, before, found);
        for (int n = 0; n < 3; n++) e[n] = quiet(collapsed(found[n]));
    }

    inline void end_block(QuietPair sums[6]) {
        for (int n = 0; n < Kernel::SUMS; n++) sums[n] = quiet(as_pair(sum[n]));
    }

    void keep(Carried<Kernel>& carried) const {
        for (int n = 0; n < Kernel::BEFORE; n++) carried.before[n] = as_pair(before[n]);
    }
};

// The same, formed before and kept: where nothing else can be computed while the flag counts.
template <class Kernel>
struct Formed {
    const Vec* next;
    const Carried<Kernel>& after;

    inline void begin_block() {}

    inline void row(const Vec*, Quiet e[3]) {
        for (int n = 0; n < 3; n++) e[n] = quiet(*next++);
    }

    inline void end_block(QuietPair sums[6]) {
        for (int n = 0; n < Kernel::SUMS; n++) sums[n] = quiet(exact(*next++));
    }

    void keep(Carried<Kernel>& carried) const {
        for (int n = 0; n < Kernel::BEFORE; n++) carried.before[n] = after.before[n];
    }
};

// ``carried`` afterwards: the rows before. Room: 3 vectors for each row and 6 for each block.
template <class Kernel>
void form(Carried<Kernel>& carried, const UniformTile& tile, Vec* kept) {
    Forming<Kernel, Vec> forming(carried);
    for (std::int64_t first = 0; first < tile.count; first += BLOCK) {
        const std::int64_t end = first + BLOCK < tile.count ? first + BLOCK : tile.count;
        forming.begin_block();
        for (std::int64_t i = first; i < end; i++) {
            Vec x[4];
            Quiet e[3];
            tile.row<Kernel>(tile.place<Kernel>(i), x);
            forming.row(x, e);
            for (int n = 0; n < 3; n++) *kept++ = plain(e[n]);
        }
        for (int n = 0; n < Kernel::SUMS; n++) *kept++ = forming.sum[n];
    }
    forming.keep(carried);
}

template <class Kernel, class Source, class Out>
void compute_blocks(Source source, Carried<Kernel>& carried, const UniformTile tile, const Powers& powers,
                    Out* const out[4]) {
    QuietPair state[3];
    for (int m = 0; m < Kernel::ORDER; m++) state[m] = quiet(carried.state[m]);
    for (std::int64_t first = 0; first < tile.count; first += BLOCK) {
        const std::int64_t end = first + BLOCK < tile.count ? first + BLOCK : tile.count;
        const typename Kernel::Line line(state, powers);
        source.begin_block();
        for (std::int64_t i = first; i < end; i++) {
            const std::int64_t t = tile.place<Kernel>(i);
            Vec x[4];
            Quiet e[3];
            tile.row<Kernel>(t, x);
            source.row(x, e);
            Kernel::scale_row(e, i - first + 1, line, powers, x, t * tile.out_row, out,
                              tile.lanes);
        }
        QuietPair sums[6];
        source.end_block(sums);
        Kernel::rebase(state, sums, end - first, powers);
    }
    for (int m = 0; m < Kernel::ORDER; m++) carried.state[m] = plain_pair(state[m]);
    source.keep(carried);
}

inline bool any(Mask mask) {
    long long found = 0;
    for (int l = 0; l < W; l++) found |= mask[l];
    return found;
}

// A tile: in doubles, and again in pairs if that was not exact.
template <class Kernel, class Out>
void compute_tile(Carried<Kernel>& carried, const UniformTile& tile, const Powers& powers,
                  Out* const out[4], Vec* room) {
    bool low = false;
    for (int n = 0; n < Kernel::BEFORE; n++) low = low || any(carried.before[n].lo != 0.0);
    if (!low) {
        Carried<Kernel> tried = carried;
        forget_inexact();
        if (HAS_QUIET)
            compute_blocks<Kernel>(Forming<Kernel, Vec>(tried), tried, tile, powers, out);
        else
            form<Kernel>(tried, tile, room);
        if (!was_inexact()) {
            if (!HAS_QUIET)
                compute_blocks<Kernel>(Formed<Kernel>{room, tried}, carried, tile, powers, out);
            else
                carried = tried;
            return;
        }
    }
    compute_blocks<Kernel>(Forming<Kernel, Pair>(carried), carried, tile, powers, out);
}

}  // namespace TRAJCLI_LEVEL
