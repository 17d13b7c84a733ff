/* The nearest point of a trellis lattice (decoders/trellis.py explains it), WIDE sequences side by side.

   A lane holds one sequence, so what is found for a sequence depends on nothing but that sequence. Only plain C with the
   vector types of gcc and clang. */

#include <stdint.h>
#include <stdlib.h>

#include "variant.h"
#define Q 5
#define LANES(i) for (int i = 0; i < WIDE; i++)

typedef float vec __attribute__((vector_size(4 * WIDE)));
typedef int32_t ivec __attribute__((vector_size(4 * WIDE)));
typedef int8_t bytes __attribute__((vector_size(WIDE)));

static const float FAR = 1e30f; /* of states that no sequence begins in */

/* What a target between 0 and Q leaves beside the nearest number that is c modulo Q. */
static inline float left_of(float target, int c) {
    float x = target - (float)c;
    if (x > Q / 2.f) x -= Q;
    else if (x < -Q / 2.f) x += Q;
    return x;
}

/* targets and rest: [sequences, 2 steps]; targets lie between 0 and Q. labels: [states, Q], the outputs of the way into a state
   from the state before it whose oldest symbol is the second index, as Q c0 + c1. Returns whether memory was short. */
int NAME(nearest_points)(int64_t sequences, int64_t steps, int states, const int8_t *labels, const float *targets, float *rest) {
    vec *score = aligned_alloc(sizeof(vec), 2 * (size_t)states * sizeof(vec));
    bytes *oldest = aligned_alloc(sizeof(vec), ((size_t)steps * states * sizeof(bytes) / sizeof(vec) + 1) * sizeof(vec));
    if (!score || !oldest) return free(score), free(oldest), 1;
    for (int64_t first = 0; first < sequences; first += WIDE) {
        int here = sequences - first < WIDE ? (int)(sequences - first) : WIDE;
        vec *now = score, *next = score + states;
        for (int s = 0; s < states; s++) now[s] = (vec){} + (s ? FAR : 0);
        for (int64_t step = 0; step < steps; step++) {
            vec each[2][Q], cost[Q * Q];
            for (int o = 0; o < 2; o++)
                for (int c = 0; c < Q; c++) {
                    vec x = {};
                    LANES(i) x[i] = left_of(i < here ? targets[((first + i) * steps + step) * 2 + o] : 0, c);
                    each[o][c] = x * x;
                }
            for (int c = 0; c < Q * Q; c++) cost[c] = each[0][c / Q] + each[1][c % Q];
            bytes *chosen = oldest + step * states;
            for (int s = 0; s < states; s++) {
                const vec *before = now + s % (states / Q) * Q;
                const int8_t *label = labels + s * Q;
                vec best = before[0] + cost[label[0]];
                ivec way = {};
                for (int u = 1; u < Q; u++) {
                    vec other = before[u] + cost[label[u]];
                    ivec better = other < best;
                    best = (vec)((better & (ivec)other) | (~better & (ivec)best));
                    way = (better & u) | (~better & way);
                }
                next[s] = best;
                chosen[s] = __builtin_convertvector(way, bytes);
            }
            vec *swap = now;
            now = next, next = swap;
        }
        for (int i = 0; i < here; i++) {
            int s = 0;
            for (int other = 1; other < states; other++)
                if (now[other][i] < now[s][i]) s = other;
            for (int64_t step = steps - 1; step >= 0; step--) {
                int u = oldest[step * states + s][i], c = labels[s * Q + u];
                int64_t at = ((first + i) * steps + step) * 2;
                rest[at] = left_of(targets[at], c / Q);
                rest[at + 1] = left_of(targets[at + 1], c % Q);
                s = s % (states / Q) * Q + u;
            }
        }
    }
    free(score);
    free(oldest);
    return 0;
}
