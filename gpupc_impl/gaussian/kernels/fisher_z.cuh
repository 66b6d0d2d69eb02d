// The Gaussian CI test (cuPC, sections 4.3 and 4.4) on a correlation matrix with ones on its diagonal. Every method
// decides with these functions, in this order of operations (the canonical evaluation of docs/ci-tests.md), so that a
// test gives the same bits wherever it runs. Fused multiply-adds are explicit; compilers must not contract others.
#pragma once

#include "backends/simt/portable.cuh"

// The rank tolerance of Algorithm 7, which gaussian/problem.py explains. Other tolerances belong to the problem.
constexpr double PSEUDO_INVERSE_TOLERANCE = 1e-9;

// Entry (a, b) of the symmetric correlation matrix. Neighbouring GPU threads have sets that differ in their last member
// a, so that reading row b is coalesced. A CPU core runs one thread's loop over b, so that reading row a is contiguous.
__device__ __forceinline__ double correlation(const double* C, int p, int a, int b) {
#ifdef GPUPC_HOST
    return C[static_cast<long long>(a) * p + b];
#else
    return C[static_cast<long long>(b) * p + a];
#endif
}

// H of section 4.3: the residual variances and covariance of Vi and Vj given S.
struct Residuals {
    double ii, jj, ij;

    // Whether an end has no variance left: the partial correlation is then 0/0, and the test separates nothing.
    __device__ bool undefined(double residual_tolerance) const {
        if (residual_tolerance == 0.0) return (ii == 0.0) | (jj == 0.0);
        return (ii <= residual_tolerance) | (jj <= residual_tolerance);
    }

    // Whether S separates, if the test is defined. With a tolerance of zero rounding errors may make variances negative
    // and |r| larger than one. As in the published code, the absolute values of variances are used then, and |log|(1 +
    // r) / (1 - r)|| is the same for r and 1 / r. NaN separates nothing.
    __device__ bool independent(double critical_r_squared, double residual_tolerance) const {
        const double explained = ij * ij, possible = ii * jj;
        if (residual_tolerance != 0.0) return explained <= critical_r_squared * possible;
        const double size = fabs(possible);
        return explained <= critical_r_squared * size || size <= critical_r_squared * explained;
    }

    __device__ double r_squared(double residual_tolerance) const {
        const double square = (ij * ij) / (ii * jj);
        if (residual_tolerance != 0.0) return square;
        return fabs(square) > 1.0 ? 1.0 / fabs(square) : fabs(square);
    }
};

// H of the test of Vi and Vj given Vk.
__device__ __forceinline__ Residuals given_one(double r_ij, double r_ik, double r_jk) {
    return {fma(-r_ik, r_ik, 1.0), fma(-r_jk, r_jk, 1.0), fma(-r_ik, r_jk, r_ij)};
}

// The number of members of a conditioning set. A kernel of a single level knows it when it is compiled, so that loops
// over members are unrolled and their numbers lie in registers. A kernel of several levels receives it at run time; a
// search begins with such a kernel, since compiling one for each level takes long. Both do the same in the same order.
template <int L>
struct Exactly {
    static constexpr int MOST = L;
    using OneLess = Exactly<L - 1>;
    __device__ __forceinline__ constexpr explicit Exactly(int) {}
    __device__ __forceinline__ constexpr operator int() const { return L; }
};

template <int MOST_MEMBERS>
struct UpTo {
    static constexpr int MOST = MOST_MEMBERS;
    using OneLess = UpTo<MOST_MEMBERS - 1>;
    int members;
    __device__ __forceinline__ explicit UpTo(int members) : members(members) {}
    __device__ __forceinline__ operator int() const { return members; }
};

// The tests given a set whose M2 = C[S, S] is near singular, with its Moore-Penrose inverse (cuPC, Algorithm 7). This
// case is rare, so its code is not inlined and is separate from `ConditioningSet`, which is kept in registers. With
// M2^T M2 = F F^T, F of full column rank (line 1), and R = (F^T F)^-1 (line 2), the inverse is F R R F^T M2^T (line 3).
// R F^T is the pseudo-inverse of F, so c_i^T M2^+ c_j is the product of two least-squares solutions, of F x = c_i and F
// y = M2 c_j. Solving these by Gram-Schmidt, instead of forming R, halves the number of digits lost to the condition
// number of F, which is as large as that of M2.
template <int MOST>
struct PseudoInverse {
    int members[MOST];
    int size, rank, i;                   // `size` members
    double left_i[MOST], right_i[MOST];  // the solutions for Vi
    double q[MOST * MOST];               // Q: its columns are orthonormal
    double triangle[MOST * MOST];        // T: upper triangular, and F = Q T

    // Factorises M2 and solves for Vi.
    __device__ __noinline__ void compute(const double* C, int p, int i);
    __device__ __noinline__ Residuals residuals(const double* C, int p, int j) const;

 private:
    __device__ double entry(const double* C, int p, int a, int b) const {
        return a == b ? 1.0 : correlation(C, p, members[a], members[b]);
    }
    // Entry (a, b) of M2^T M2.
    __device__ double square_of_m2(const double* C, int p, int a, int b) const {
        double sum = 0.0;
#pragma unroll 1
        for (int k = 0; k < size; ++k) sum = fma(entry(C, p, k, a), entry(C, p, k, b), sum);
        return sum;
    }
    __device__ void solve(double* right_hand_side, double* x) const;
    __device__ void project(const double* C, int p, int v, double* left, double* right) const;
};

template <int MOST>
__device__ __noinline__ void PseudoInverse<MOST>::compute(const double* C, int p, int i) {
    // Line 1: Courrieu's full-rank Cholesky factorisation of M2^T M2, with F in q.
    double smallest = 0.0;
#pragma unroll 1
    for (int a = 0; a < size; ++a) {
        const double diagonal = square_of_m2(C, p, a, a);
        if (a == 0 || diagonal < smallest) smallest = diagonal;
    }
    rank = 0;
#pragma unroll 1
    for (int k = 0; k < size; ++k) {
#pragma unroll 1
        for (int a = 0; a < size; ++a) {
            double sum = a < k ? 0.0 : square_of_m2(C, p, a, k);
#pragma unroll 1
            for (int b = 0; b < rank && a >= k; ++b) sum = fma(-q[a * MOST + b], q[k * MOST + b], sum);
            q[a * MOST + rank] = sum;
        }
        const double pivot = q[k * MOST + rank];
        if (pivot <= PSEUDO_INVERSE_TOLERANCE * smallest) continue;
        const double root = sqrt(pivot);
#pragma unroll 1
        for (int a = k; a < size; ++a) q[a * MOST + rank] /= root;
        ++rank;
    }
    // Modified Gram-Schmidt, in place.
#pragma unroll 1
    for (int k = 0; k < rank; ++k) {
        double square = 0.0;
#pragma unroll 1
        for (int a = 0; a < size; ++a) square = fma(q[a * MOST + k], q[a * MOST + k], square);
        const double length = sqrt(square);
        triangle[k * MOST + k] = length;
#pragma unroll 1
        for (int a = 0; a < size; ++a) q[a * MOST + k] /= length;
#pragma unroll 1
        for (int b = k + 1; b < rank; ++b) {
            double along = 0.0;
#pragma unroll 1
            for (int a = 0; a < size; ++a) along = fma(q[a * MOST + k], q[a * MOST + b], along);
            triangle[k * MOST + b] = along;
#pragma unroll 1
            for (int a = 0; a < size; ++a) q[a * MOST + b] = fma(-along, q[a * MOST + k], q[a * MOST + b]);
        }
    }
    this->i = i;
    project(C, p, i, left_i, right_i);
}

// Computes the x that minimises |F x - right_hand_side|; overwrites the right-hand side.
template <int MOST>
__device__ void PseudoInverse<MOST>::solve(double* right_hand_side, double* x) const {
#pragma unroll 1
    for (int k = 0; k < rank; ++k) {
        double along = 0.0;
#pragma unroll 1
        for (int a = 0; a < size; ++a) along = fma(q[a * MOST + k], right_hand_side[a], along);
#pragma unroll 1
        for (int a = 0; a < size; ++a) right_hand_side[a] = fma(-along, q[a * MOST + k], right_hand_side[a]);
        x[k] = along;
    }
#pragma unroll 1
    for (int k = rank - 1; k >= 0; --k) {
#pragma unroll 1
        for (int b = k + 1; b < rank; ++b) x[k] = fma(-triangle[k * MOST + b], x[b], x[k]);
        x[k] /= triangle[k * MOST + k];
    }
}

// Solves F x = C[S, v] for `left` and F y = M2 C[S, v] for `right`, both in the least-squares sense (see above for F).
template <int MOST>
__device__ void PseudoInverse<MOST>::project(const double* C, int p, int v, double* left, double* right) const {
    double c[MOST], m2_c[MOST];
#pragma unroll 1
    for (int a = 0; a < size; ++a) c[a] = correlation(C, p, members[a], v);
#pragma unroll 1
    for (int a = 0; a < size; ++a) {
        m2_c[a] = 0.0;
#pragma unroll 1
        for (int b = 0; b < size; ++b) m2_c[a] = fma(entry(C, p, a, b), c[b], m2_c[a]);
    }
    solve(c, left);
    solve(m2_c, right);
}

// The covariance takes the left solution of the smaller index, so that (i, j) and (j, i) give the same bits.
template <int MOST>
__device__ __noinline__ Residuals PseudoInverse<MOST>::residuals(const double* C, int p, int j) const {
    double left_j[MOST], right_j[MOST];
    project(C, p, j, left_j, right_j);
    const bool ascending = i < j;
    Residuals h{1.0, 1.0, C[static_cast<long long>(ascending ? i : j) * p + (ascending ? j : i)]};
#pragma unroll 1
    for (int k = 0; k < rank; ++k) {
        h.ii = fma(-left_i[k], right_i[k], h.ii);
        h.jj = fma(-left_j[k], right_j[k], h.jj);
        h.ij = fma(-(ascending ? left_i[k] : left_j[k]), ascending ? right_j[k] : right_i[k], h.ij);
    }
    return h;
}

// A conditioning set S of `size` ascending variables. M2 is factorised once for all tests that share S and Vi.
template <class Size>
struct ConditioningSet {
    static constexpr int MOST = Size::MOST;

    Size size;
    int members[MOST];
    double factor[MOST * (MOST + 1) / 2];  // Cholesky factor of M2, lower triangle, with reciprocal diagonal
    double projection[MOST];               // the solution for Vi on the members
    double residual;                       // the variance of Vi given S
    bool singular;  // whether M2 is near singular, so that `pseudo` is used instead of the factor
    PseudoInverse<MOST> pseudo;

    __device__ __forceinline__ explicit ConditioningSet(Size size) : size(size) {}

    // M2 is near singular if a pivot is at most `pivot_tolerance`; no pivot is above 1, so with 1 every M2 is.
    __device__ __forceinline__ void factorise(const double* C, int p, int i, double pivot_tolerance) {
        singular = false;
#pragma unroll
        for (int a = 0; a < size; ++a) {
#pragma unroll
            for (int b = 0; b < a; ++b) {
                double sum = correlation(C, p, members[a], members[b]);
#pragma unroll
                for (int k = 0; k < b; ++k) sum = fma(-factor[entry(a, k)], factor[entry(b, k)], sum);
                factor[entry(a, b)] = sum * factor[entry(b, b)];
            }
            double pivot = 1.0;
#pragma unroll
            for (int k = 0; k < a; ++k) pivot = fma(-factor[entry(a, k)], factor[entry(a, k)], pivot);
            if (a > 0 && pivot <= pivot_tolerance) {  // The first pivot is one.
                singular = true;
                pivot = 1.0;
            }
            factor[entry(a, a)] = 1.0 / sqrt(pivot);
        }
        if (singular) {
            pseudo.size = size;
#pragma unroll
            for (int a = 0; a < size; ++a) pseudo.members[a] = members[a];
            pseudo.compute(C, p, i);
        } else {
            residual = project(C, p, i, projection);
        }
    }

    // The test of Vi and Vj, whose correlation is `c_ij`.
    __device__ __forceinline__ Residuals residuals(const double* C, int p, int i, int j, double c_ij) const {
        if (singular) return pseudo.residuals(C, p, j);
        double other[MOST];
        Residuals h;
        h.ii = residual;
        h.jj = project(C, p, j, other);
        h.ij = c_ij;
#pragma unroll
        for (int a = 0; a < size; ++a) h.ij = fma(-projection[a], other[a], h.ij);
        return h;
    }

 private:
    // The index of entry (a, b), b <= a, of the factor.
    __device__ __forceinline__ static constexpr int entry(int a, int b) { return a * (a + 1) / 2 + b; }

    // Solves the factor against C[S, v]; returns the residual variance of v.
    __device__ __forceinline__ double project(const double* C, int p, int v, double* solution) const {
        double left = 1.0;
#pragma unroll
        for (int a = 0; a < size; ++a) {
            double sum = correlation(C, p, members[a], v);
#pragma unroll
            for (int k = 0; k < a; ++k) sum = fma(-factor[entry(a, k)], solution[k], sum);
            solution[a] = sum * factor[entry(a, a)];
            left = fma(-solution[a], solution[a], left);
        }
        return left;
    }
};
