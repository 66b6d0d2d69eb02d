// The parameters that all kernels with tests share, and what they are made into.
#pragma once

#include "discrete/kernels/decide.cuh"
#include "engine/kernels/combinations.cuh"
#include "engine/kernels/tally.cuh"

#define DATA_PARAMETERS(Code)                                                                                 \
    const Code *codes, long long code_stride, int n, const int *categories, const unsigned long long *planes, \
        const int *first_plane, int plane_words, unsigned plane_passes
#define DATA(Code) \
    Data<Code> { codes, code_stride, n, categories, planes, first_plane, plane_words, plane_passes }

#define SEARCH_PARAMETERS                                                                                             \
    int p, unsigned long long *best, unsigned long long *largest_p, int first_come, int workload, const double *logs, \
        int adjusted, const double *critical_values, int critical_listed, const unsigned long long *critical_df,      \
        const double *critical_of_df, int critical_known, unsigned long long *unclear_count,                          \
        unsigned long long unclear_capacity, int *unclear_pairs, unsigned long long *unclear_keys,                    \
        unsigned long long *unclear_df, double *unclear_statistics
#define SEARCH                                                                                                 \
    DiscreteSearch {                                                                                           \
        BestKeys{best, p, first_come != 0}, largest_p, workload != 0, Rules{logs, adjusted != 0},              \
            Critical{critical_values, critical_listed, critical_df, critical_of_df, critical_known}, Unclear { \
            unclear_count, unclear_capacity, unclear_pairs, unclear_keys, unclear_df, unclear_statistics       \
        }                                                                                                      \
    }

#define LEVEL_PARAMETERS                                                                                      \
    const int *rows, int row_stride, const int *degrees, const unsigned long long *binomials, int max_degree, \
        int level, unsigned long long tests_per_edge, unsigned long long *counters

// How many of row i's sets are tried for its edge to j: all, or a workload's, which are the edge's first ones and start
// with those of the smaller index (gpuPC, section 4.1).
__device__ __forceinline__ unsigned long long sets_to_try(const Binomials& binomial, int level, int i, int degree_i,
                                                          int j, int degree_j, unsigned long long tests_per_edge) {
    const unsigned long long sets = binomial(degree_i - 1, level);
    if (tests_per_edge == 0) return sets;
    if (i < j) return min(sets, tests_per_edge);
    const unsigned long long before = degree_j > level ? binomial(degree_j - 1, level) : 0;
    return before >= tests_per_edge ? 0 : min(sets, tests_per_edge - before);
}
