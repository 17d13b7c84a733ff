/* A source is compiled for several classes of processors; functions are named after the class, vectors as wide as it has. */

#pragma once

#if defined __AVX512F__ /* as many floats as a register holds: gcc turns wider vectors into scalars */
#define WIDE 16
#elif defined __AVX2__
#define WIDE 8
#else
#define WIDE 4
#endif
#define JOINED(name, variant) name##_##variant
#define EXPANDED(name, variant) JOINED(name, variant)
#define NAME(name) EXPANDED(name, VARIANT)
