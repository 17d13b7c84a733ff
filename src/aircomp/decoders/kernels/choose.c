/* Which of the library's kernels this processor runs, and of which source they are. */

const char *kernels_key(void) { return KEY; }

/* The processor's and the operating system's word, for both must know the registers. */
const char *kernels_variant(void) {
#if defined HAS_avx512 || defined HAS_avx2
    __builtin_cpu_init();
#endif
#ifdef HAS_avx512
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd")
        && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return "avx512";
#endif
#ifdef HAS_avx2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi")
        && __builtin_cpu_supports("bmi2"))
        return "avx2";
#endif
    return "baseline";
}
