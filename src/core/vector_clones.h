#pragma once

// Before a function of plain loops: compiled for several instruction sets, chosen when the program starts.
#if defined(__x86_64__) && defined(__linux__)
#define ATTENTIVE_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ATTENTIVE_VECTOR_CLONES
#endif
