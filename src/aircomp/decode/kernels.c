/* Posterior moments of counts, and the network's correction of them, one slot after the other.

   A vector holds WIDE neighbouring codewords of one slot. So what is computed for a slot depends on nothing but that slot, to the
   last bit, and slots may be split among chunks and threads at will. The formulas are those of decode/prior.py, decode/tempered.py
   and decode/cnn.py, where they are explained; tests/decode/test_native.py compares the two.

   Only plain C with the vector types of gcc and clang, and no library: the compiler chooses the instructions. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined __AVX512F__ /* as many floats as a register holds: gcc turns wider vectors into scalars */
#define WIDE 16
#elif defined __AVX2__
#define WIDE 8
#else
#define WIDE 4
#endif
#define INLINE static inline __attribute__((always_inline))
#define LANES(i) for (int i = 0; i < WIDE; i++)

typedef float vec __attribute__((vector_size(4 * WIDE)));
typedef int32_t ivec __attribute__((vector_size(4 * WIDE)));
typedef float vec_anywhere __attribute__((vector_size(4 * WIDE), aligned(4), may_alias));

static const float MIN_EXPONENT = -40, MAX_EXPONENT = 60; /* as in decode/prior.py */
static const float LARGEST_EXPONENT = 80;                 /* of exp itself, which has room for 87 */
static const float MIN_VARIANCE = 1e-8f, FLAT = 1e-3f, MAX_CORRECTION = 3; /* as in decode/net_blocks.py */
static const float SPENT = 1e-9f; /* sums end where nothing larger is left; float32 resolves 6e-8 */
static const int FEATURES = 6;    /* as in decode/cnn.py */

/* ---- vectors ---- */

INLINE vec all(float value) { return (vec){} + value; }
INLINE vec pick(ivec where, vec yes, vec no) { return (vec)((where & (ivec)yes) | (~where & (ivec)no)); }
INLINE vec at_least(vec x, vec low) { return pick(x < low, low, x); } /* NaN stays NaN, here and below */
INLINE vec at_most(vec x, vec high) { return pick(x > high, high, x); }
INLINE vec between(vec x, float low, float high) { return at_most(at_least(x, all(low)), all(high)); }

INLINE int any(ivec where) {
    int64_t words[WIDE / 2], found = 0;
    memcpy(words, &where, sizeof where);
    for (int i = 0; i < WIDE / 2; i++) found |= words[i];
    return found != 0;
}

INLINE vec read(const float *from, int left, float beyond) {
    if (left >= WIDE) return *(const vec_anywhere *)from;
    vec x = all(beyond);
    for (int i = 0; i < left; i++) x[i] = from[i];
    return x;
}

INLINE void write(float *to, int left, vec x) {
    if (left >= WIDE) *(vec_anywhere *)to = x;
    else for (int i = 0; i < left; i++) to[i] = x[i];
}

INLINE vec look_up(const float *table, ivec index) {
    vec x;
    LANES(i) x[i] = table[index[i]];
    return x;
}

/* The next two: range reduction and the first terms of a series, to the resolution of float32. */
INLINE vec exponential(vec x) {
    x = between(x, -LARGEST_EXPONENT, LARGEST_EXPONENT);
    const vec half_up = all(12582912); /* 1.5 * 2^23: what is added to it is rounded to a whole number */
    vec n = (x * 1.44269504f + half_up) - half_up;
    vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vec p = all(1.f / 5040);
    p = p * r + 1.f / 720;
    p = p * r + 1.f / 120;
    p = p * r + 1.f / 24;
    p = p * r + 1.f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.f;
    p = p * r + 1.f;
    return p * (vec)((__builtin_convertvector(n, ivec) + 127) << 23);
}

INLINE vec logarithm(vec x) { /* of positive numbers */
    ivec bits = (ivec)x - 0x3f3504f3; /* of sqrt(1/2): the mantissa is then within sqrt(1/2) .. sqrt(2) */
    vec n = __builtin_convertvector(bits >> 23, vec);
    vec s = (vec)((bits & 0x7fffff) + 0x3f3504f3) - 1;
    s = s / (s + 2); /* log m = 2 artanh((m-1)/(m+1)) */
    vec t = s * s;
    vec p = t * (2.f / 9) + 2.f / 7;
    p = p * t + 2.f / 5;
    p = p * t + 2.f / 3;
    return n * 0.693359375f + ((p * t + 2) * s - n * 2.12194440e-4f);
}

INLINE vec square_root(vec x) {
    vec root;
    LANES(i) root[i] = __builtin_sqrtf(x[i]);
    return root;
}

INLINE vec whole(vec x, float low, float high) { /* floor of what is above zero; NaN becomes low, so that it may be an index */
    x = at_most(pick(x >= low, x, all(low)), all(high));
    return __builtin_convertvector(__builtin_convertvector(x, ivec), vec);
}

/* ---- the output block, after its products with the codebook: decode/gamp_steps.py ---- */

/* z, v: state, and z_new, v_new what the products say of it; both are updated in place of the latter. kappa, seen: what the
   pseudo-channel multiplies with the codebook. */
void output_step(int64_t slots, int uses, float gain, float damping, float precision, float limit, const float *y_,
                 const float *noise, const float *z_, const float *v_, float *z_new, float *v_new, float *kappa, float *seen) {
    for (int64_t slot = 0; slot < slots; slot++)
        for (int j = 0; j < uses; j += WIDE) {
            int left = uses - j;
            int64_t at = slot * uses + j;
            vec y = read(y_ + at, left, 0), z = read(z_ + at, left, 0), v = read(v_ + at, left, 1);
            vec found_v = read(v_new + at, left, 1);
            vec found_z = read(z_new + at, left, 0) - gain * (y - z) * found_v / (noise[slot] + v);
            z = between(found_z + damping * (z - found_z), -limit, limit);
            v = found_v + damping * (v - found_v);
            vec k = precision / (noise[slot] + v);
            write(z_new + at, left, z);
            write(v_new + at, left, v);
            write(kappa + at, left, k);
            write(seen + at, left, k * (y - z));
        }
}

/* ---- sums of weights outwards from a mode ---- */

typedef struct {
    vec up, down; /* what the weight one count above, and below, is multiplied with, but for the counts' own factors */
    vec shrink;   /* how both change from count to count */
    vec above, below, zeroth, first, second;
} outwards;

/* Begin at the mode; where every mode is the least count there is none below. */
INLINE outwards begin(vec distance, vec precision, vec log_rate, float power, int least) {
    vec climb = (distance - 0.5f) * precision + log_rate, descend = (-0.5f - distance) * precision - log_rate;
    return (outwards){
        .up = exponential(between(climb * power, MIN_EXPONENT, MAX_EXPONENT)),
        .down = least ? all(0) : exponential(between(descend * power, MIN_EXPONENT, MAX_EXPONENT)),
        .shrink = exponential(at_least(precision * -power, all(MIN_EXPONENT))),
        .above = all(1), .below = all(least ? 0 : 1), .zeroth = all(1), .first = all(0), .second = all(0),
    };
}

/* Take one step further; say whether any weight still counts. No weight exceeds the ceiling. */
INLINE int step(outwards *s, int k, vec growth, vec decay, float ceiling) {
    s->above = at_most(s->above * (s->up * growth), all(ceiling));
    s->below = at_most(s->below * (s->down * decay), all(ceiling));
    vec both = s->above + s->below, moment = both * (float)(k * k);
    s->zeroth += both;
    s->first += (s->above - s->below) * (float)k;
    s->second += moment;
    s->up *= s->shrink;
    s->down *= s->shrink;
    return any(moment > SPENT);
}

/* ---- Poisson counts, or those of an urn: decode/prior.py ---- */

INLINE vec poisson_mode(vec target, vec R, vec V, vec log_rate, float most) {
    vec rate = exponential(log_rate), at = at_least(at_most(target, pick(rate > R, rate, R) + 1), all(1));
    return whole(at - (at - target + V * logarithm(at)) / (1 + V / at), 0, most);
}

INLINE vec urn_mode(vec R, vec V, vec precision, vec shape, vec log_p, vec log_first, float most) {
    vec upper = R;
    for (int i = 0; i < 2; i++) {
        vec at = at_least(upper, all(1.5f));
        upper = R + 0.5f + V * (log_p + logarithm((at + (shape - 1)) / at));
    }
    upper = whole(upper, 1, most);
    /* log x! by Stirling's series, off by 0.0005 for one: this only asks which of two weights is the larger */
    vec inverse = 1 / upper;
    vec log_factorial = (upper + 0.5f) * logarithm(upper) - upper + 0.9189385f
                        + inverse * (1.f / 12 - inverse * inverse * (1.f / 360));
    vec above_zero = log_first + (upper - 1) * (log_p + logarithm(shape + upper * 0.5f)) - log_factorial;
    return pick(above_zero + upper * (R - upper * 0.5f) * precision > 0, upper, all(0));
}

typedef struct {
    vec mean, var;
} moments;

/* By formulas of a single mode that is zero in all lanes (least), or of any modes. */
INLINE moments summed(vec mode, vec R, vec precision, vec log_rate, const vec *shape, int reach, int least) {
    outwards s = begin(R - mode, precision, log_rate, 1, least);
    for (int k = 1; k <= reach; k++) {
        vec growth = 1 / (mode + (float)k), decay = least ? all(0) : at_least(mode - (float)(k - 1), all(0));
        if (shape) {
            growth *= mode + (float)(k - 1) + *shape;
            if (!least) decay /= at_least(mode - (float)k, all(0)) + *shape;
        }
        if (!step(&s, k, growth, decay, __builtin_inff())) break;
    }
    /* beyond a mode that is misplaced by more than the reach, weights grow without end: the last outweighs the others */
    vec end = pick(s.above > s.below, all(reach), all(-reach)), share = 1 / s.zeroth;
    ivec lost = s.second > 3e38f;
    vec offset = pick(lost, end, s.first * share);
    return (moments){mode + offset, pick(lost, end * end, s.second * share) - offset * offset};
}

INLINE moments poisson(vec R, vec V, vec log_rate, int reach, float most) {
    vec target = R + 0.5f + V * log_rate, precision = 1 / V;
    if (!any(target >= 1)) return summed(all(0), R, precision, log_rate, NULL, reach, 1);
    return summed(poisson_mode(target, R, V, log_rate, most), R, precision, log_rate, NULL, reach, 0);
}

/* log_first: logarithm of the weight of one against that of zero, beforehand */
INLINE moments urn(vec R, vec V, vec log_p, vec shape, vec log_first, int reach, float most) {
    vec precision = 1 / V;
    /* two weighs less than one, and one less than zero */
    if (!any((R >= 1.5f) | (shape >= 1) | (log_first + (R - 0.5f) * precision > 0)))
        return summed(all(0), R, precision, log_p, &shape, reach, 1);
    vec mode = urn_mode(R, V, precision, shape, log_p, log_first, most);
    return summed(mode, R, precision, log_p, &shape, reach, 0);
}

/* Moments of counts seen as R = x + N(0, V). log_rate: of Poisson counts, or the urn's log p; shape: the urn's, or none, and
   log_first its. Priors have one row for all slots, or one each (own). */
void poisson_moments(int64_t slots, int codewords, int own, int reach, float most, const float *R_, const float *V_,
                     const float *log_rate, const float *shape, const float *log_first, float *mean, float *var) {
    for (int64_t slot = 0; slot < slots; slot++)
        for (int j = 0; j < codewords; j += WIDE) {
            int left = codewords - j;
            int64_t here = slot * codewords + j, prior = own ? here : j;
            vec R = at_most(read(R_ + here, left, 0), all(most)), V = read(V_ + here, left, 1);
            vec log_p = read(log_rate + prior, left, 0);
            moments found = shape ? urn(R, V, log_p, read(shape + prior, left, 1), read(log_first + prior, left, 0), reach, most)
                                  : poisson(R, V, log_p, reach, most);
            write(mean + here, left, found.mean);
            write(var + here, left, found.var);
        }
}

/* ---- the network's posterior: decode/tempered.py ---- */

typedef struct {
    int reach, largest;         /* counts either side of a mode; the largest mode */
    float power;                /* one by the temperature */
    const float *growth, *decay; /* x^-power, x^power: of a step up to x, of one down from x; none leads down from one */
    const float *log_factorial;
} tempered;

INLINE vec slab_mode(vec upper, vec target, vec V, float largest) {
    vec root = upper, shifted = target + V;
    for (int i = 0; i < 2; i++) {
        vec at = at_least(root, all(1));
        root = (shifted - V * logarithm(at)) * at / (at + V);
    }
    return whole(root, 1, largest);
}

typedef struct {
    vec mean, var, active;
} activity_moments;

INLINE activity_moments tempered_moments(const tempered *t, vec R, vec V, vec log_rate) {
    vec precision = 1 / V, target = R + V * log_rate + 0.5f, rate = exponential(log_rate);
    vec upper = at_most(target, pick(rate > R, rate, R) + 1), mode = all(1), height = (R - 0.5f) * precision + log_rate;
    const float ceiling = 1.14e26f; /* exp(MAX_EXPONENT) */
    outwards s;
    if (any(upper >= 2)) {
        mode = slab_mode(upper, target, V, t->largest);
        s = begin(R - mode, precision, log_rate, t->power, 0);
        ivec m = __builtin_convertvector(mode, ivec);
        for (int k = 1; k <= t->reach; k++) {
            ivec below = m - (k - 1);
            below &= below > 0; /* the table's zeroth entry is zero */
            if (!step(&s, k, look_up(t->growth, m + k), look_up(t->decay, below), ceiling)) break;
        }
        height = ((R - mode * 0.5f) * precision + log_rate) * mode - look_up(t->log_factorial, m);
    } else { /* nearly everywhere: one is the likeliest count above zero */
        s = begin(R - mode, precision, log_rate, t->power, 1);
        for (int k = 1; k <= t->reach && step(&s, k, all(t->growth[1 + k]), all(0), ceiling); k++);
    }
    vec zero = exponential(height * -t->power), share = 1 / s.zeroth, offset = s.first * share;
    vec slab_mean = mode + offset, slab_var = at_least(s.second * share - offset * offset, all(0));
    vec active = s.zeroth / (s.zeroth + zero), mean = active * slab_mean;
    return (activity_moments){mean, mean * (slab_mean - mean) + active * slab_var, active};
}

/* ---- the network's convolutions: decode/cnn.py ---- */

typedef struct {
    int codewords, stride, border; /* rows of maps: border zeros, codewords, zeros */
} map;

/* Filters first .. first + count of so many vectors of codewords; a weight is [filters, kernel, channels]. Both numbers are
   constants where this is inlined, and their product is eight: as many sums as hide the latency of an addition. */
INLINE void filter(const map *m, const float *in, int channels, const float *weight, const float *bias, float *out, int j,
                   int vectors, int first, int count, int relu) {
    int kernel = 2 * m->border + 1;
    vec sum[8];
    for (int f = 0; f < count; f++)
        for (int i = 0; i < vectors; i++) sum[f * vectors + i] = all(bias[first + f]);
    for (int t = 0; t < kernel; t++)
        for (int c = 0; c < channels; c++) {
            const float *x = in + (int64_t)c * m->stride + j + t, *w = weight + ((int64_t)first * kernel + t) * channels + c;
            for (int f = 0; f < count; f++)
                for (int i = 0; i < vectors; i++)
                    sum[f * vectors + i] += *(const vec_anywhere *)(x + i * WIDE) * w[(int64_t)f * kernel * channels];
        }
    for (int f = 0; f < count; f++)
        for (int i = 0; i < vectors; i++) {
            vec y = sum[f * vectors + i];
            int at = j + i * WIDE;
            write(out + (int64_t)(first + f) * m->stride + m->border + at, m->codewords - at, relu ? at_least(y, all(0)) : y);
        }
}

static void convolve(const map *m, const float *in, int channels, const float *weight, const float *bias, float *out, int count,
                     int relu) {
    int f = 0;
    for (; f + 8 <= count; f += 8)
        for (int j = 0; j < m->codewords; j += WIDE) filter(m, in, channels, weight, bias, out, j, 1, f, 8, relu);
    for (; f < count; f++) {
        int j = 0;
        for (; j + 8 * WIDE <= m->codewords; j += 8 * WIDE) filter(m, in, channels, weight, bias, out, j, 8, f, 1, relu);
        for (; j < m->codewords; j += WIDE) filter(m, in, channels, weight, bias, out, j, 1, f, 1, relu);
    }
}

INLINE float total(vec x) {
    float sum = 0;
    LANES(i) sum += x[i];
    return sum;
}

/* log λ with mean zero and deviation one over the codewords */
static void standardise(int codewords, const float *log_rate, float *to) {
    vec sum = all(0), squares = all(0);
    for (int j = 0; j < codewords; j += WIDE) sum += read(log_rate + j, codewords - j, 0);
    float mean = total(sum) / codewords;
    for (int j = 0; j < codewords; j += WIDE) {
        vec centred = read(log_rate + j, codewords - j, mean) - mean;
        squares += centred * centred;
        write(to + j, codewords - j, centred);
    }
    float scale = 1 / __builtin_sqrtf(total(squares) / codewords + FLAT * FLAT);
    for (int j = 0; j < codewords; j++) to[j] *= scale;
}

/* Moments of the counts and, with a network (filters > 0), the refined mean: the second half of a layer of GAMP-Net.
   Returns zero, or one if there is no memory. */
int refined_moments(int64_t slots, int codewords, int own, int reach, int largest, float power, const float *growth,
                    const float *decay, const float *log_factorial, const float *R_, const float *V_, const float *log_rate_,
                    const float *activity_, float *mean_, float *var_, float *active_, int num_filters, int kernel, float gate,
                    const float *const *weights, float *refined) {
    tempered t = {reach, largest, power, growth, decay, log_factorial};
    map m = {codewords, (codewords + WIDE - 1) / WIDE * WIDE + kernel - 1, kernel / 2};
    float *features = NULL, *hidden = NULL, *deeper = NULL, *out = NULL;
    if (num_filters) {
        features = calloc((size_t)(FEATURES + 2 * num_filters + 1) * m.stride, sizeof(float)); /* zero: the maps' borders */
        if (!features) return 1;
        hidden = features + (int64_t)FEATURES * m.stride;
        deeper = hidden + (int64_t)num_filters * m.stride;
        out = deeper + (int64_t)num_filters * m.stride;
    }
    for (int64_t slot = 0; slot < slots; slot++) {
        int64_t row = slot * codewords, prior = own ? row : 0;
        for (int j = 0; j < codewords; j += WIDE) {
            int left = codewords - j;
            vec R = read(R_ + row + j, left, 0), V = read(V_ + row + j, left, 1);
            activity_moments found = tempered_moments(&t, R, V, read(log_rate_ + prior + j, left, 0));
            write(mean_ + row + j, left, found.mean);
            write(var_ + row + j, left, found.var);
            write(active_ + row + j, left, found.active);
            if (!num_filters) continue;
            float *to = features + m.border + j;
            write(to, left, R);
            write(to + m.stride, left, square_root(V));
            write(to + 2 * m.stride, left, found.mean);
            write(to + 3 * m.stride, left, square_root(at_least(found.var, all(MIN_VARIANCE))));
            write(to + 4 * m.stride, left, read(activity_ + prior + j, left, 0));
        }
        if (!num_filters) continue;
        standardise(codewords, log_rate_ + prior, features + 5 * m.stride + m.border);
        convolve(&m, features, FEATURES, weights[0], weights[1], hidden, num_filters, 1);
        convolve(&m, hidden, num_filters, weights[2], weights[3], deeper, num_filters, 1);
        convolve(&m, deeper, num_filters, weights[4], weights[5], out, 1, 0);
        const float *doubt = features + 3 * m.stride + m.border;
        for (int j = 0; j < codewords; j++) {
            float correction = out[m.border + j];
            correction = correction > MAX_CORRECTION ? MAX_CORRECTION : correction < -MAX_CORRECTION ? -MAX_CORRECTION : correction;
            refined[row + j] = mean_[row + j] + gate * doubt[j] * correction;
        }
    }
    free(features);
    return 0;
}
