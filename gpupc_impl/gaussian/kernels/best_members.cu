// The best sets of level 1 of chosen pairs, from standardised samples. A library's matrix products screen all
// variables, and the few that may be the best one are tested by the correlations of fixed_order.cuh. The answer is
// therefore that of these correlations, whatever the order in which the library adds.
#include "engine/kernels/warp.cuh"
#include "gaussian/kernels/fisher_z.cuh"
#include "gaussian/kernels/fixed_order.cuh"

constexpr double LEAST_VARIANCE = 1e-3;  // The residual variance below which products do not decide.

struct Search {
    const double* samples;   // (m, p), standardised
    const double* products;  // rows of products of the samples of some variables with those of all
    int m, p;
    double error;  // upper bound on the difference of a product from its correlation
    double critical_zero, critical_one, residual_tolerance;
    __device__ double correlation(int i, int j) const { return fixed_order_correlation(samples, m, p, i, j); }
};

// What products tell of r^2 given a variable: it is at least `low`, which is infinite if the variable surely is in no
// set of the pair, and at most `high`, which is infinite unless the variable surely is one. With products within e of
// the correlations, r_ik^2 is within 3 e of its value, the residual variances v and w too, and the residual covariance
// c within 4 e. With h = min(v, w), |c| <= (v w)^(1/2) and h <= (v w)^(1/2), c^2 / (v w) then changes by at most (8 e +
// 7 e) / h to first order; the bound below is twice as large.
struct Bounds {
    double low, high;

    __device__ Bounds(const Search& search, double r_ij, double r_ik, double r_jk) {
        low = high = __longlong_as_double(0x7ff0000000000000);
        const double square = fmax(r_ik * r_ik, r_jk * r_jk), off = 3.0 * search.error;
        if (square + off <= search.critical_zero) return;  // Neither end depends on the variable.
        const Residuals h = given_one(r_ij, r_ik, r_jk);
        const double least = fmin(h.ii, h.jj);
        if (least < LEAST_VARIANCE) {
            low = 0.0;
            return;
        }
        const double r_squared = (h.ij * h.ij) / (h.ii * h.jj), change = 32.0 * search.error / least;
        if (r_squared - change > search.critical_one) return;
        low = r_squared - change;
        if (square - off > search.critical_zero && r_squared + change <= search.critical_one) high = r_squared + change;
    }
};

// Executes f(lane, k) for all variables k but i and j, ascending in each lane.
template <class F>
__device__ __forceinline__ void each_other(int p, int i, int j, F f) {
    for (int first = 0; first < p; first += LANES) {
        each_lane(min(LANES, p - first), [&](int lane) {
            if (first + lane != i && first + lane != j) f(lane, first + lane);
        });
    }
}

// The variable that separates pair number t with the smallest r^2, of all that depend on either end; the first of
// several, and p if none separates. The ends of the pair are variables[2 t] and variables[2 t + 1], whose products are
// in rows ends[2 t] and ends[2 t + 1]. A warp searches for a pair. Grid (ceil(n_pairs / warps)), block (warps).
__global__ void best_members(const __grid_constant__ Search search, const int* ends, const int* variables, int n_pairs,
                             int* members) {
    const int t = blockIdx.x * warp_count() + warp_index();
    if (t >= n_pairs) return;
    const int i = variables[2 * t], j = variables[2 * t + 1], p = search.p;
    const double* const of_i = search.products + static_cast<long long>(ends[2 * t]) * p;
    const double* const of_j = search.products + static_cast<long long>(ends[2 * t + 1]) * p;
    const double nothing = __longlong_as_double(0x7ff0000000000000);
    PerLane<double> high, least, member;
    PerLane<long long> open;  // the numbers of variables that may be the best one
    each_lane(LANES, [&](int lane) {
        high[lane] = least[lane] = nothing;
        member[lane] = p;
        open[lane] = 0;
    });
    each_other(p, i, j,
               [&](int lane, int k) { high[lane] = fmin(high[lane], Bounds(search, of_i[j], of_i[k], of_j[k]).high); });
    const double enough = smallest(high);
    const auto is_open = [&](int k) {
        const double low = Bounds(search, of_i[j], of_i[k], of_j[k]).low;
        return low != nothing && low <= enough;
    };
    each_other(p, i, j, [&](int lane, int k) {
        if (!is_open(k)) return;
        ++open[lane];
        member[lane] = k;
    });
    if (sum_of_lanes(open) == 1 && enough < nothing) {
        const double only = smallest(member);
        if (warp_leader()) members[t] = static_cast<int>(only);
        return;
    }
    each_lane(LANES, [&](int lane) { member[lane] = p; });
    each_other(p, i, j, [&](int lane, int k) {
        if (open[lane] == 0 || !is_open(k)) return;
        const double r_ik = search.correlation(i, k), r_jk = search.correlation(j, k);
        if (r_ik * r_ik <= search.critical_zero && r_jk * r_jk <= search.critical_zero) return;
        const Residuals h = given_one(search.correlation(i, j), r_ik, r_jk);
        if (h.undefined(search.residual_tolerance)) return;
        if (!h.independent(search.critical_one, search.residual_tolerance)) return;
        const double r_squared = h.r_squared(search.residual_tolerance);
        if (r_squared < least[lane]) {
            least[lane] = r_squared;
            member[lane] = k;
        }
    });
    const double best = smallest(least);
    each_lane(LANES, [&](int lane) { member[lane] = least[lane] == best ? member[lane] : p; });
    const double first = smallest(member);
    if (warp_leader()) members[t] = static_cast<int>(first);
}
