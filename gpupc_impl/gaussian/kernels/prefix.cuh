// A prefix P of conditioning sets, eliminated from all variables of a row at once. Let K members of P be eliminated
// from the correlation matrix, one Cholesky column each. What remains is the variance of every variable of the row
// given P and its covariance with the row's own variable Vi given P: all that a test of (i, j | P + k) needs beside one
// more elimination, that of the last member k. The columns are kept as a stack. From one prefix to the next mostly the
// last member changes, and then only the top of the stack is computed again. This is the elimination of fisher_z.cuh's
// ConditioningSet in another order of the loops: every number comes from the same operations on the same operands, so
// every decision has the same bits.
#pragma once

#include "engine/kernels/warp.cuh"
#include "gaussian/kernels/fisher_z.cuh"

// A warp works on a prefix of K members together; its lanes hold neighbouring variables of the row.
template <class Size>
struct Prefix {
    static constexpr int MOST = Size::MOST;

    Size K;
    int positions[MOST];        // the positions of the members in the row, ascending
    double projection[MOST];    // the projection of Vi on each member, given the members before it
    double residual[MOST + 1];  // the variance of Vi given the first 0, 1, ..., K members
    int singular;               // the first member that has no variance given those before it; K if there is none
    double* cells;              // the stack of the row's variables, see the three functions below
    int n;                      // the number of variables in the row

    __device__ __forceinline__ Prefix(Size K, double* cells, int n) : K(K), cells(cells), n(n) {}

    __device__ __forceinline__ static long long cells_needed(Size K, int n) {
        return static_cast<long long>(3 * K + 2) * n;
    }
    // The projection of the variable at position v on member a, given the members before it.
    __device__ __forceinline__ double& projected(int a, int v) { return cells[a * n + v]; }
    // The variable's variance, and its covariance with Vi, given the first `depth` members.
    __device__ __forceinline__ double& variance(int depth, int v) { return cells[(K + depth) * n + v]; }
    __device__ __forceinline__ double& covariance(int depth, int v) { return cells[(2 * K + 1 + depth) * n + v]; }

    // Fills the bottom of the stack, with no member eliminated.
    __device__ __forceinline__ void begin(const double* c_i, const int* row) {
        residual[0] = 1.0;
        singular = K;
        for (int v = 0; v < n; v += LANES) {
            each_lane(min(n - v, LANES), [&](int lane) {
                variance(0, v + lane) = 1.0;
                covariance(0, v + lane) = c_i[row[v + lane]];
            });
        }
        join_lanes();
    }

    // Eliminates the members from number `first` on.
    __device__ __forceinline__ void add(const double* C, int p, const int* row, int first, double pivot_tolerance) {
        if (singular >= first) singular = K;
#pragma unroll
        for (int a = 0; a < K; ++a) {
            if (a < first) continue;
            const int member = positions[a];
            const double pivot = variance(a, member);
            const bool near_singular = a > 0 && pivot <= pivot_tolerance;
            if (near_singular && singular == K) singular = a;
            const double inverse = 1.0 / sqrt(near_singular ? 1.0 : pivot);
            const double of_i = covariance(a, member) * inverse;
            projection[a] = of_i;
            residual[a + 1] = fma(-of_i, of_i, residual[a]);
            double of_member[MOST];
#pragma unroll
            for (int b = 0; b < a; ++b) of_member[b] = projected(b, member);
            const double* c_member = C + static_cast<long long>(row[member]) * p;
            for (int v = 0; v < n; v += LANES) {
                each_lane(min(n - v, LANES), [&](int lane) {
                    const int at = v + lane;
                    double left = c_member[row[at]];
#pragma unroll
                    for (int b = 0; b < a; ++b) left = fma(-of_member[b], projected(b, at), left);
                    const double along = left * inverse;
                    projected(a, at) = along;
                    variance(a + 1, at) = fma(-along, along, variance(a, at));
                    covariance(a + 1, at) = fma(-of_i, along, covariance(a, at));
                });
            }
            join_lanes();
        }
    }

    // Moves to the next combination of n - 1; returns the first member that changed, or -1 after the last one.
    __device__ __forceinline__ int advance() {
        int changed = -1, next = 0;
#pragma unroll
        for (int a = K - 1; a >= 0; --a) {
            if (changed < 0 && positions[a] != n - 1 - K + a) changed = a;
        }
#pragma unroll
        for (int a = 0; a < K; ++a) {
            if (changed < 0 || a < changed) continue;
            next = a == changed ? positions[a] + 1 : next + 1;
            positions[a] = next;
        }
        return changed;
    }

    __device__ __forceinline__ bool has(int q) const {
        bool member = false;
#pragma unroll
        for (int a = 0; a < K; ++a) member |= q == positions[a];
        return member;
    }
};
