/* Posterior moments of counts, and the network's correction of them, one slot after the other.

   A vector holds WIDE neighbouring codewords of one slot. So what is computed for a slot depends on nothing but that slot, to the
   last bit, and slots may be split among chunks and threads at will. The formulas are those of decoders/amp/prior.py, decoders/net/tempered.py
   and decoders/net/cnn.py, where they are explained; tests/decoders/kernels/test_native.py compares the two.

   Only plain C with the vector types of gcc and clang, and no library: the compiler chooses the instructions. This file is
   compiled for several classes of processors (tools/build_kernels.py), which functions are named for: output_step_avx2. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "variant.h"
#if defined __AVX512F__ || defined __aarch64__ /* vectors by rows of a block of sums, as many as 32 or 16 registers hold */
#define SIDE 4
#define TALL 4
#else
#define SIDE 2
#define TALL 4
#endif
#define INLINE static inline __attribute__((always_inline))
#define LANES(i) for (int i = 0; i < WIDE; i++)

typedef float vec __attribute__((vector_size(4 * WIDE)));
typedef int32_t ivec __attribute__((vector_size(4 * WIDE)));
typedef float vec_anywhere __attribute__((vector_size(4 * WIDE), aligned(4), may_alias));

static const float MIN_EXPONENT = -40, MAX_EXPONENT = 60; /* as in decoders/amp/prior.py */
static const float LARGEST_EXPONENT = 80;                 /* of exp itself, which has room for 87 */
static const float MIN_VARIANCE = 1e-8f, FLAT = 1e-3f, MAX_CORRECTION = 3; /* as in decoders/net/blocks.py */
static const float SPENT = 1e-9f; /* sums end where nothing larger is left; float32 resolves 6e-8 */
static const float LEAST_VARIANCE = 1e-12f; /* as in decoders/net/count_table.py */
static const int FEATURES = 6;    /* as in decoders/net/cnn.py */

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

INLINE float total(vec x) {
    float sum = 0;
    LANES(i) sum += x[i];
    return sum;
}

INLINE float sum_of(int count, const float *numbers) {
    vec sum = all(0);
    for (int j = 0; j < count; j += WIDE) sum += read(numbers + j, count - j, 0);
    return total(sum);
}

/* ---- products with a codebook ---- */

#define BLOCK_SLOTS 16 /* pass through all products before the next ones do */
#define BLOCK_INNER 256

/* The sums of count slots for SIDE vectors of columns; count is a constant where this is inlined. */
INLINE void sums(int inner, const float *in, int in_stride, const float *matrix, int stride, float *out, int out_stride, int count) {
    vec sum[SIDE * TALL];
    for (int s = 0; s < count; s++)
        for (int i = 0; i < SIDE; i++) sum[s * SIDE + i] = *(const vec *)(out + s * out_stride + i * WIDE);
    for (int k = 0; k < inner; k++) {
        const float *row = matrix + (int64_t)k * stride;
        vec here[SIDE];
        for (int i = 0; i < SIDE; i++) here[i] = *(const vec *)(row + i * WIDE);
        for (int s = 0; s < count; s++)
            for (int i = 0; i < SIDE; i++) sum[s * SIDE + i] += here[i] * in[s * in_stride + k];
    }
    for (int s = 0; s < count; s++)
        for (int i = 0; i < SIDE; i++) *(vec *)(out + s * out_stride + i * WIDE) = sum[s * SIDE + i];
}

/* out = in * matrix; rows of out and of the matrix have `stride` numbers, a multiple of SIDE vectors, and rows of in `in_stride`.
   Each row is summed in the order of the inner index, whatever the other rows. */
static void multiply(int slots, int inner, const float *in, int in_stride, const float *matrix, int stride, float *out) {
    memset(out, 0, (size_t)slots * stride * sizeof(float));
    for (int first = 0; first < inner; first += BLOCK_INNER) {
        int some = inner - first < BLOCK_INNER ? inner - first : BLOCK_INNER;
        for (int j = 0; j < stride; j += SIDE * WIDE) {
            const float *panel = matrix + (int64_t)first * stride + j;
            int s = 0;
            for (; s + TALL <= slots; s += TALL)
                sums(some, in + (int64_t)s * in_stride + first, in_stride, panel, stride, out + (int64_t)s * stride + j, stride, TALL);
            for (; s < slots; s++)
                sums(some, in + (int64_t)s * in_stride + first, in_stride, panel, stride, out + (int64_t)s * stride + j, stride, 1);
        }
    }
}

INLINE int padded(int size) { return (size + SIDE * WIDE - 1) / (SIDE * WIDE) * (SIDE * WIDE); }

/* ---- message passing up to the pseudo-channel: decoders/amp/steps.py, decoders/net/amp_da_net.py, decoders/amp/amp_da.py ---- */

typedef struct {
    float gain, damping, precision;
    float limit; /* of z, either side of zero */
    float least; /* under variances and precisions */
    int new_v, new_z; /* whether the pseudo-channel sees what the output block has just found, or what it was given */
} channel;

/* The output block of a slot, whose products with the codebook are z_new and v_new: state and result. Returns the expected
   energy of the noise, averaged over the uses, if it is asked for (weigh). */
INLINE float output_block(const channel *c, int uses, int weigh, float noise, const float *y_, const float *z_, const float *v_,
                          const float *z_new, const float *v_new, float *z_out, float *v_out, float *kappa, float *seen) {
    vec energy = all(0);
    for (int j = 0; j < uses; j += WIDE) {
        int left = uses - j;
        vec y = read(y_ + j, left, 0), z = read(z_ + j, left, 0), v = read(v_ + j, left, 1);
        vec found_v = *(const vec *)(v_new + j), error = y - z, d = at_least(noise + v, all(c->least));
        vec found_z = *(const vec *)(z_new + j) - c->gain * error * found_v / d;
        vec next_z = between(found_z + c->damping * (z - found_z), -c->limit, c->limit);
        vec next_v = found_v + c->damping * (v - found_v), new_error = y - next_z;
        vec k = c->precision * at_least(1 / (c->new_v ? noise + next_v : d), all(c->least));
        for (int i = left; i < WIDE; i++) k[i] = 0;
        if (weigh) {
            vec share = (noise + c->least) / (noise + c->least + next_v);
            vec part = share * new_error * (share * new_error) + noise * next_v / (next_v + noise + c->least);
            for (int i = left; i < WIDE; i++) part[i] = 0;
            energy += part;
        }
        write(z_out + j, left, next_z);
        write(v_out + j, left, next_v);
        *(vec *)(kappa + j) = k;
        *(vec *)(seen + j) = k * (c->new_z ? new_error : error);
    }
    return total(energy) / uses;
}

/* The codebook in the forms that products need, and room for those of a block of slots. */
typedef struct {
    int codewords, uses, wide, wide_uses, even; /* even: all squares are this one */
    float square;
    float *rows, *squares, *columns, *square_columns;
    float *z_new, *v_new, *kappa, *seen, *matched, *psi;
} book;

/* Prepare a codebook; what it returns is to be freed, and is none if there is no memory. */
static void *open_book(book *b, int codewords, int uses, const float *codebook) {
    *b = (book){codewords, uses, padded(codewords), padded(uses), 1, codebook[0] * codebook[0]};
    for (int64_t i = 0; b->even && i < (int64_t)codewords * uses; i++) b->even = codebook[i] * codebook[i] == b->square;
    int64_t straight = (int64_t)codewords * b->wide_uses, turned = (int64_t)uses * b->wide;
    int64_t block = (int64_t)BLOCK_SLOTS * b->wide_uses;
    size_t size = (2 * (straight + turned + 2 * block) + 2 * (int64_t)BLOCK_SLOTS * b->wide) * sizeof(float);
    void *memory = NULL;
    if (posix_memalign(&memory, sizeof(vec), size)) return NULL;
    b->rows = memset(memory, 0, size);
    b->squares = b->rows + straight;
    b->columns = b->squares + straight;
    b->square_columns = b->columns + turned;
    b->z_new = b->square_columns + turned;
    b->v_new = b->z_new + block;
    b->kappa = b->v_new + block;
    b->seen = b->kappa + block;
    b->matched = b->seen + block;
    b->psi = b->matched + (int64_t)BLOCK_SLOTS * b->wide;
    for (int j = 0; j < codewords; j++)
        for (int u = 0; u < uses; u++) {
            float entry = codebook[(int64_t)j * uses + u];
            b->rows[(int64_t)j * b->wide_uses + u] = b->columns[(int64_t)u * b->wide + j] = entry;
            b->squares[(int64_t)j * b->wide_uses + u] = b->square_columns[(int64_t)u * b->wide + j] = entry * entry;
        }
    return memory;
}

/* One iteration of a block of slots; z_new holds what x_hat would send. No energy is found where there is no room for it. */
static void pass_block(const book *b, const channel *c, int some, const float *y, const float *noise, const float *x_hat,
                       const float *nu, const float *z, const float *v, float *z_out, float *v_out, float *R, float *V,
                       float *energy) {
    if (!b->even) multiply(some, b->codewords, nu, b->codewords, b->squares, b->wide_uses, b->v_new);
    for (int s = 0; s < some; s++) {
        int64_t at = (int64_t)s * b->uses, row = (int64_t)s * b->wide_uses;
        if (b->even) {
            float all_of_it = b->square * sum_of(b->codewords, nu + (int64_t)s * b->codewords);
            for (int j = 0; j < b->wide_uses; j += WIDE) *(vec *)(b->v_new + row + j) = all(all_of_it);
        }
        float found = output_block(c, b->uses, energy != NULL, noise[s], y + at, z + at, v + at, b->z_new + row, b->v_new + row,
                                   z_out + at, v_out + at, b->kappa + row, b->seen + row);
        if (energy) energy[s] = found;
    }
    multiply(some, b->uses, b->seen, b->wide_uses, b->columns, b->wide, b->matched);
    if (!b->even) multiply(some, b->uses, b->kappa, b->wide_uses, b->square_columns, b->wide, b->psi);
    for (int s = 0; s < some; s++) {
        vec one_psi = all(b->even ? b->square * sum_of(b->uses, b->kappa + (int64_t)s * b->wide_uses) : 0);
        for (int j = 0; j < b->codewords; j += WIDE) {
            int left = b->codewords - j;
            int64_t at = (int64_t)s * b->codewords + j, row = (int64_t)s * b->wide + j;
            vec variance = 1 / at_least(b->even ? one_psi : *(const vec *)(b->psi + row), all(c->least));
            write(V + at, left, variance);
            write(R + at, left, read(x_hat + at, left, 0) + variance * *(const vec *)(b->matched + row));
        }
    }
}

/* One iteration up to R and V of every count. Returns one if there is no memory. */
int NAME(pass_messages)(int64_t slots, int codewords, int uses, float gain, float damping, float precision, float limit,
                        float least, int new_v, int new_z, const float *codebook, const float *y, const float *noise,
                        const float *x_hat, const float *nu, const float *z, const float *v, float *z_out, float *v_out, float *R,
                        float *V, float *energy) {
    channel c = {gain, damping, precision, limit, least, new_v, new_z};
    book b;
    void *memory = open_book(&b, codewords, uses, codebook);
    if (!memory) return 1;
    for (int64_t first = 0; first < slots; first += BLOCK_SLOTS) {
        int some = slots - first < BLOCK_SLOTS ? slots - first : BLOCK_SLOTS;
        int64_t words = first * codewords, at = first * uses;
        multiply(some, codewords, x_hat + words, codewords, b.rows, b.wide_uses, b.z_new);
        pass_block(&b, &c, some, y + at, noise + first, x_hat + words, nu + words, z + at, v + at, z_out + at, v_out + at,
                   R + words, V + words, energy + first);
    }
    free(memory);
    return 0;
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

/* ---- Poisson counts, or those of an urn: decoders/amp/prior.py ---- */

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

typedef struct {
    int own, reach; /* own: a row for each slot; counts either side of a mode */
    float most;     /* the largest count */
    const float *log_rate, *shape, *log_first; /* of Poisson counts; or the urn's log p, its shape, and log_first its */
} prior;

/* Moments of the counts of a slot seen as R = x + N(0, V). */
INLINE void slot_moments(const prior *p, int codewords, int64_t slot, const float *R_, const float *V_, float *mean, float *var) {
    for (int j = 0; j < codewords; j += WIDE) {
        int left = codewords - j;
        int64_t at = p->own ? slot * codewords + j : j;
        vec R = at_most(read(R_ + j, left, 0), all(p->most)), V = read(V_ + j, left, 1), log_p = read(p->log_rate + at, left, 0);
        moments found = p->shape ? urn(R, V, log_p, read(p->shape + at, left, 1), read(p->log_first + at, left, 0), p->reach, p->most)
                                 : poisson(R, V, log_p, p->reach, p->most);
        write(mean + j, left, found.mean);
        write(var + j, left, found.var);
    }
}

void NAME(poisson_moments)(int64_t slots, int codewords, int own, int reach, float most, const float *R, const float *V,
                           const float *log_rate, const float *shape, const float *log_first, float *mean, float *var) {
    prior p = {own, reach, most, log_rate, shape, log_first};
    for (int64_t slot = 0; slot < slots; slot++) {
        int64_t row = slot * codewords;
        slot_moments(&p, codewords, slot, R + row, V + row, mean + row, var + row);
    }
}

/* All iterations of GAMP, one block of slots after the other: decoders/amp/steps.py. x_hat, nu, z and v hold the start, and
   then the end. Returns one if there is no memory. */
int NAME(iterate)(int64_t slots, int codewords, int uses, int own, int iterations, int reach, float most, float limit,
                  const float *codebook, const float *y, const float *noise, const float *log_rate, const float *shape,
                  const float *log_first, float *x_hat, float *nu, float *z, float *v) {
    channel c = {1, 0, 1, limit, 0, 1, 1};
    prior p = {own, reach, most, log_rate, shape, log_first};
    book b;
    void *opened = open_book(&b, codewords, uses, codebook);
    float *R = opened ? malloc(2 * (size_t)BLOCK_SLOTS * codewords * sizeof(float)) : NULL;
    if (!R) {
        free(opened);
        return 1;
    }
    float *V = R + (int64_t)BLOCK_SLOTS * codewords;
    for (int64_t first = 0; first < slots; first += BLOCK_SLOTS) {
        int some = slots - first < BLOCK_SLOTS ? slots - first : BLOCK_SLOTS;
        int64_t words = first * codewords, at = first * uses;
        for (int t = 0; t < iterations; t++) {
            multiply(some, codewords, x_hat + words, codewords, b.rows, b.wide_uses, b.z_new);
            pass_block(&b, &c, some, y + at, noise + first, x_hat + words, nu + words, z + at, v + at, z + at, v + at, R, V, NULL);
            for (int i = 0; i < some; i++) {
                int64_t row = (int64_t)i * codewords;
                slot_moments(&p, codewords, first + i, R + row, V + row, x_hat + words + row, nu + words + row);
            }
        }
    }
    free(R);
    free(opened);
    return 0;
}

/* ---- the network's posterior: decoders/net/tempered.py ---- */

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

INLINE activity_moments tempered_moments(const tempered *t, vec R, vec V, vec log_rate, vec rate) {
    vec precision = 1 / V, target = R + V * log_rate + 0.5f;
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

/* ---- the network's convolutions: decoders/net/cnn.py ---- */

typedef struct {
    int codewords, stride, border; /* a row begins with zeros, of which the last `border` are seen; then codewords, then zeros */
} map;

#define MARGIN WIDE /* numbers before the first codeword, so that it lies where vectors begin */

INLINE map map_of(int codewords, int kernel) {
    int border = kernel / 2, before = (border + MARGIN - 1) / MARGIN * MARGIN;
    int after = (codewords + SIDE * WIDE - 1) / (SIDE * WIDE) * (SIDE * WIDE) + border;
    return (map){codewords, (before + after + WIDE - 1) / WIDE * WIDE, border};
}

/* the first codeword of a row */
INLINE int64_t first_of(const map *m) { return (m->border + MARGIN - 1) / MARGIN * MARGIN; }

/* Filters first .. first + count of so many vectors of codewords; a weight is [filters, kernel, channels]. Both numbers are
   constants where this is inlined, and their product is that of the sums which registers hold. */
INLINE void filter(const map *m, const float *in, int channels, const float *weight, const float *bias, float *out, int j,
                   int vectors, int first, int count, int relu) {
    int kernel = 2 * m->border + 1;
    int64_t seen = (int64_t)kernel * channels, begin = first_of(m);
    vec sum[SIDE * TALL];
    for (int f = 0; f < count; f++)
        for (int i = 0; i < vectors; i++) sum[f * vectors + i] = bias ? all(bias[first + f]) : all(0);
    for (int t = 0; t < kernel; t++) {
        const float *x = in + begin + j + t - m->border, *w = weight + first * seen + (int64_t)t * channels;
        for (int c = 0; c < channels; c++, x += m->stride, w++) {
            vec here[SIDE];
            for (int i = 0; i < vectors; i++) here[i] = *(const vec_anywhere *)(x + i * WIDE);
            for (int f = 0; f < count; f++)
                for (int i = 0; i < vectors; i++) sum[f * vectors + i] += here[i] * w[f * seen];
        }
    }
    for (int f = 0; f < count; f++)
        for (int i = 0; i < vectors; i++) {
            vec y = sum[f * vectors + i];
            int at = j + i * WIDE;
            write(out + (int64_t)(first + f) * m->stride + begin + at, m->codewords - at, relu ? at_least(y, all(0)) : y);
        }
}

/* Some codewords after the others, so that what all filters see of them stays in the nearest cache. */
static void convolve(const map *m, const float *in, int channels, const float *weight, const float *bias, float *out, int count,
                     int relu) {
    int f = 0, whole = count / TALL * TALL;
    for (int j = 0; whole && j < m->codewords; j += SIDE * WIDE)
        for (f = 0; f < whole; f += TALL) filter(m, in, channels, weight, bias, out, j, SIDE, f, TALL, relu);
    for (; f < count; f++)
        for (int j = 0; j < m->codewords; j += SIDE * WIDE) filter(m, in, channels, weight, bias, out, j, SIDE, f, 1, relu);
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

/* Memory for the maps of a slot, zero where nothing is written later; what it returns is to be freed. */
static float *maps_of(const map *m, int num_filters) {
    size_t size = ((size_t)(FEATURES + 2 * num_filters + 1) * m->stride) * sizeof(float);
    void *maps = NULL;
    if (posix_memalign(&maps, sizeof(vec), size)) return NULL;
    return memset(maps, 0, size);
}

INLINE void add_up(int count, const float *numbers, double *sums) {
    for (int j = 0; j < count; j++) sums[j] += numbers[j];
}

/* A layer of GAMP-Net, with a network (filters > 0) or without, one block of slots after the other: the state before it and
   after it (refined, var, z_out, v_out), and what EM is told of these slots: sums of means, variances and activities of every
   codeword, then that of the noise's energy. Returns one if there is no memory. */
int NAME(layer)(int64_t slots, int codewords, int uses, int own, float gain, float damping, float precision, float limit,
                const float *codebook, const float *y, const float *noise, const float *x_hat, const float *nu, const float *z,
                const float *v, int reach, int largest, float power, const float *growth, const float *decay,
                const float *log_factorial, const float *log_rate_, const float *activity_, int num_filters, int kernel,
                float gate, const float *const *weights, float *refined, float *var_, float *z_out, float *v_out, double *sums) {
    channel c = {gain, damping, precision, limit, 0, 1, 1};
    tempered t = {reach, largest, power, growth, decay, log_factorial};
    map m = map_of(codewords, kernel);
    int64_t begin = first_of(&m), block = (int64_t)BLOCK_SLOTS * codewords;
    book b;
    void *opened = open_book(&b, codewords, uses, codebook);
    float *features = opened ? maps_of(&m, num_filters) : NULL;
    float *R_ = features ? malloc((2 * block + BLOCK_SLOTS + 3 * codewords) * sizeof(float)) : NULL;
    if (!R_) {
        free(features);
        free(opened);
        return 1;
    }
    float *V_ = R_ + block, *energy = V_ + block, *mean = energy + BLOCK_SLOTS, *active = mean + codewords, *rate = active + codewords;
    float *hidden = features + (int64_t)FEATURES * m.stride, *deeper = hidden + (int64_t)num_filters * m.stride;
    float *out = deeper + (int64_t)num_filters * m.stride;
    for (int64_t first = 0; first < slots; first += BLOCK_SLOTS) {
        int some = slots - first < BLOCK_SLOTS ? slots - first : BLOCK_SLOTS;
        int64_t words = first * codewords, at = first * uses;
        multiply(some, codewords, x_hat + words, codewords, b.rows, b.wide_uses, b.z_new);
        pass_block(&b, &c, some, y + at, noise + first, x_hat + words, nu + words, z + at, v + at, z_out + at, v_out + at, R_, V_,
                   energy);
        for (int i = 0; i < some; i++) {
            int64_t seen = (int64_t)i * codewords, row = words + seen, prior = own ? row : 0;
            for (int j = 0; (own || !row) && j < codewords; j += WIDE)
                write(rate + j, codewords - j, exponential(read(log_rate_ + prior + j, codewords - j, 0)));
            for (int j = 0; j < codewords; j += WIDE) {
                int left = codewords - j;
                vec R = read(R_ + seen + j, left, 0), V = read(V_ + seen + j, left, 1);
                activity_moments found = tempered_moments(&t, R, V, read(log_rate_ + prior + j, left, 0), read(rate + j, left, 1));
                write(mean + j, left, found.mean);
                write(var_ + row + j, left, found.var);
                write(active + j, left, found.active);
                if (!num_filters) continue;
                float *to = features + begin + j;
                write(to, left, R);
                write(to + m.stride, left, square_root(V));
                write(to + 2 * m.stride, left, found.mean);
                write(to + 3 * m.stride, left, square_root(at_least(found.var, all(MIN_VARIANCE))));
                write(to + 4 * m.stride, left, read(activity_ + prior + j, left, 0));
            }
            add_up(codewords, mean, sums);
            add_up(codewords, var_ + row, sums + codewords);
            add_up(codewords, active, sums + 2 * codewords);
            sums[3 * codewords] += energy[i];
            memcpy(refined + row, mean, codewords * sizeof(float));
            if (!num_filters) continue;
            if (own || !row) standardise(codewords, log_rate_ + prior, features + 5 * m.stride + begin);
            convolve(&m, features, FEATURES, weights[0], weights[1], hidden, num_filters, 1);
            convolve(&m, hidden, num_filters, weights[2], weights[3], deeper, num_filters, 1);
            convolve(&m, deeper, num_filters, weights[4], weights[5], out, 1, 0);
            const float *doubt = features + 3 * m.stride + begin;
            for (int j = 0; j < codewords; j++) {
                float correction = out[begin + j];
                correction = correction > MAX_CORRECTION ? MAX_CORRECTION : correction < -MAX_CORRECTION ? -MAX_CORRECTION : correction;
                refined[row + j] += gate * doubt[j] * correction;
            }
        }
    }
    free(R_);
    free(features);
    free(opened);
    return 0;
}

/* ---- the paper's network: decoders/net/count_table.py and decoders/net/amp_da_net.py ---- */

INLINE vec log_weight(vec slope, vec precision, const float *log_factorial, int k) {
    return (slope - precision * (k * 0.5f)) * (float)k - log_factorial[k];
}

/* By a table of the counts 0 .. largest, whose weights beyond a mode above zero only fall. */
INLINE activity_moments table_moments(int largest, float power, const float *log_factorial, vec R, vec V, vec log_rate,
                                      vec log_odds) {
    vec precision = 1 / V, slope = R * precision + log_rate;
    vec highest = all(0), mode = all(0), last = all(-__builtin_inff());
    int peak = 1;
    for (; peak <= largest; peak++) {
        vec height = log_weight(slope, precision, log_factorial, peak) + log_odds;
        ivec higher = height > highest, rising = height > last;
        highest = pick(higher, height, highest);
        mode = pick(higher, all(peak), mode);
        if (!any(rising)) break;
        last = height;
    }
    vec zero = exponential(highest * -power);
    vec total = all(0), first = all(0), second = all(0), shift = log_odds - highest;
    for (int k = 1; k <= largest; k++) {
        vec weight = exponential((log_weight(slope, precision, log_factorial, k) + shift) * power);
        vec distance = (float)k - mode, moment = weight * distance;
        total += weight;
        first += moment;
        second += moment * distance;
        if (k >= peak && !any(weight * (float)(k * k) > SPENT)) break;
    }
    vec share = 1 / (total + zero);
    vec offset = (first - zero * mode) * share, square = (second + zero * mode * mode) * share;
    vec var = at_least(square - offset * offset, all(LEAST_VARIANCE));
    return (activity_moments){mode + offset, var, total * share};
}

/* Moments of the counts; priors have one row for all slots, or one each (own). */
void NAME(count_moments)(int64_t slots, int codewords, int own, int largest, float power, const float *log_factorial,
                         const float *R_, const float *V_, const float *log_rate, const float *log_odds, float *mean, float *var,
                         float *active) {
    for (int64_t slot = 0; slot < slots; slot++)
        for (int j = 0; j < codewords; j += WIDE) {
            int left = codewords - j;
            int64_t here = slot * codewords + j, prior = own ? here : j;
            activity_moments found = table_moments(largest, power, log_factorial, read(R_ + here, left, 0), read(V_ + here, left, 1),
                                                   read(log_rate + prior, left, 0), read(log_odds + prior, left, 0));
            write(mean + here, left, found.mean);
            write(var + here, left, found.var);
            write(active + here, left, found.active);
        }
}

/* What the network makes of the moments: a share (gate) of the CNN's estimate, and the rest of the mean. */
int NAME(estimate)(int64_t slots, int codewords, int own, int num_filters, int kernel, float gate, float limit,
                   const float *const *weights, const float *R_, const float *V_, const float *mean_, const float *var_,
                   const float *activity, const float *popularity, float *estimate) {
    map m = map_of(codewords, kernel);
    int64_t begin = first_of(&m);
    float *features = maps_of(&m, num_filters);
    if (!features) return 1;
    float *hidden = features + (int64_t)FEATURES * m.stride, *deeper = hidden + (int64_t)num_filters * m.stride;
    float *out = deeper + (int64_t)num_filters * m.stride;
    for (int64_t slot = 0; slot < slots; slot++) {
        int64_t row = slot * codewords, prior = own ? row : 0;
        for (int j = 0; j < codewords; j += WIDE) {
            int left = codewords - j;
            float *to = features + begin + j;
            write(to, left, read(R_ + row + j, left, 0));
            write(to + m.stride, left, square_root(read(V_ + row + j, left, 0)));
            write(to + 2 * m.stride, left, read(mean_ + row + j, left, 0));
            write(to + 3 * m.stride, left, square_root(read(var_ + row + j, left, 0)));
            write(to + 4 * m.stride, left, read(activity + prior + j, left, 0));
            write(to + 5 * m.stride, left, read(popularity + prior + j, left, 0));
        }
        convolve(&m, features, FEATURES, weights[0], NULL, hidden, num_filters, 1);
        convolve(&m, hidden, num_filters, weights[1], NULL, deeper, num_filters, 1);
        convolve(&m, deeper, num_filters, weights[2], NULL, out, 1, 1);
        for (int j = 0; j < codewords; j += WIDE) {
            int left = codewords - j;
            vec mixed = read(mean_ + row + j, left, 0) * (1 - gate) + *(const vec *)(out + begin + j) * gate;
            write(estimate + row + j, left, at_most(mixed, all(limit)));
        }
    }
    free(features);
    return 0;
}

/* ---- AMP-DA: decoders/amp/slab.py and decoders/amp/amp_da.py ---- */

typedef struct {
    vec mean, var, active, idle;
} slab_found;

/* Moments of counts that are zero or alike likely in 1 .. largest, and the chances that they are above zero and zero. */
INLINE slab_found slab_moments(int largest, vec log_largest, float least_chance, float least_variance, vec R, vec V, vec log_odds) {
    vec precision = 1 / V, bounded = between(R, 1, largest);
    const vec half_up = all(12582912);
    vec mode = (bounded + half_up) - half_up;
    int lowest = !any(mode > 1); /* nearly everywhere: no count below the mode */
    outwards s = begin(R - mode, precision, all(0), 1, lowest);
    for (int k = 1; k < largest; k++) {
        vec growth = pick(mode <= (float)(largest - k), all(1), all(0));
        vec decay = lowest ? all(0) : pick(mode >= (float)(k + 1), all(1), all(0));
        if (!step(&s, k, growth, decay, __builtin_inff())) break;
    }
    vec each = 1 / s.zeroth, offset = s.first * each, slab_mean = mode + offset, slab_var = s.second * each - offset * offset;
    vec odds = logarithm(s.zeroth) - log_largest + (R - mode * 0.5f) * mode * precision + log_odds;
    vec against = exponential(-odds), active = 1 / (1 + against), idle = against * active, mean = active * slab_mean;
    return (slab_found){mean, at_least(active * slab_var + idle * mean * slab_mean, all(least_variance)),
                        between(active, least_chance, 1 - least_chance), between(idle, least_chance, 1 - least_chance)};
}

/* A batch of slots through all iterations. alpha, idle: activity of every codeword and what is left to one; sigma2: noise
   variance, one for all slots if it is learned, or one each. x_hat and sigma2 hold the start. From iteration `patience` + 1 on a
   residual that rises ends the batch, with the counts from before. Returns the number of iterations, or -1 if there is no
   memory. */
int NAME(settle)(int slots, int codewords, int uses, int iterations, int patience, int largest, int learn_noise, float damping,
                 float limit, float least_chance, float least, const float *codebook, const float *y, float *x_hat, float *alpha,
                 float *idle, float *sigma2) {
    channel c = {1, damping, 1, limit, least, 1, 1};
    book b;
    void *opened = open_book(&b, codewords, uses, codebook);
    int64_t words = (int64_t)slots * codewords, at = (int64_t)slots * uses;
    float *memory = opened ? malloc((4 * words + 3 * at + slots + codewords) * sizeof(float)) : NULL;
    if (!memory) {
        free(opened);
        return -1;
    }
    float *next = memory, *nu = next + words, *R = nu + words, *V = R + words, *z = V + words, *v = z + at, *signal = v + at;
    float *energy = signal + at, *log_odds = energy + slots;
    memcpy(z, y, at * sizeof(float));
    for (int64_t i = 0; i < at; i++) v[i] = 1;
    for (int64_t i = 0; i < words; i++) nu[i] = 1;
    vec log_largest = logarithm(all(largest));
    double residual = __builtin_inf();
    int t = 1;
    for (int s = 0; s < slots; s += BLOCK_SLOTS) {
        int some = slots - s < BLOCK_SLOTS ? slots - s : BLOCK_SLOTS;
        multiply(some, codewords, x_hat + (int64_t)s * codewords, codewords, b.rows, b.wide_uses, b.z_new);
        for (int i = 0; i < some; i++) memcpy(signal + (int64_t)(s + i) * uses, b.z_new + (int64_t)i * b.wide_uses, uses * sizeof(float));
    }
    for (;; t++) {
        for (int j = 0; j < codewords; j += WIDE) {
            int left = codewords - j;
            write(log_odds + j, left, logarithm(read(alpha + j, left, 1)) - logarithm(read(idle + j, left, 1)));
        }
        memset(alpha, 0, codewords * sizeof(float));
        memset(idle, 0, codewords * sizeof(float));
        double found = 0, noise = 0;
        for (int s = 0; s < slots; s += BLOCK_SLOTS) {
            int some = slots - s < BLOCK_SLOTS ? slots - s : BLOCK_SLOTS;
            int64_t of_words = (int64_t)s * codewords, of_uses = (int64_t)s * uses;
            for (int i = 0; i < some; i++)
                memcpy(b.z_new + (int64_t)i * b.wide_uses, signal + of_uses + (int64_t)i * uses, uses * sizeof(float));
            pass_block(&b, &c, some, y + of_uses, sigma2 + s, x_hat + of_words, nu + of_words, z + of_uses, v + of_uses,
                       z + of_uses, v + of_uses, R + of_words, V + of_words, energy + s);
            for (int i = 0; i < some; i++)
                for (int j = 0; j < codewords; j += WIDE) {
                    int left = codewords - j;
                    int64_t here = of_words + (int64_t)i * codewords + j;
                    slab_found p = slab_moments(largest, log_largest, least_chance, least, read(R + here, left, 0),
                                                read(V + here, left, 1), read(log_odds + j, left, 0));
                    write(next + here, left, p.mean);
                    write(nu + here, left, p.var);
                    write(alpha + j, left, read(alpha + j, left, 0) + p.active);
                    write(idle + j, left, read(idle + j, left, 0) + p.idle);
                }
            multiply(some, codewords, next + of_words, codewords, b.rows, b.wide_uses, b.z_new);
            for (int i = 0; i < some; i++) {
                const float *sent = b.z_new + (int64_t)i * b.wide_uses, *heard = y + of_uses + (int64_t)i * uses;
                vec misfit = all(0);
                for (int j = 0; j < uses; j += WIDE) {
                    vec error = read(heard + j, uses - j, 0) - *(const vec *)(sent + j);
                    misfit += error * error;
                }
                memcpy(signal + of_uses + (int64_t)i * uses, sent, uses * sizeof(float));
                found += total(misfit);
                noise += energy[s + i];
            }
        }
        for (int j = 0; j < codewords; j++) alpha[j] /= slots, idle[j] /= slots;
        if (learn_noise)
            for (int s = 0; s < slots; s++) sigma2[s] = noise / slots > least ? noise / slots : least;
        int rose = found >= residual && t > patience;
        if (!rose) memcpy(x_hat, next, words * sizeof(float));
        if (rose || t >= iterations) break;
        residual = found;
    }
    free(memory);
    free(opened);
    return t;
}
