// Level 1 between two ranges of rows. With the rows of i and j on the device, a warp finds the canonical set of edge
// (i, j) by one ascending scan over both neighbourhoods (gaussian/kernels/level_one.cuh), without keys and atomics.
// Rows I stay on the device while ranges J of rows pass by, so each launch covers a pair of ranges.
#include "engine/kernels/tally.cuh"
#include "gaussian/kernels/level_one.cuh"

// Rows of `count` variables from `first` on: row r of the matrix begins at c[r * p], of the graph at near[r * words].
struct PanelRows {
    const double* c;
    const unsigned* near;
    const unsigned char* has_twin;  // see mark_twins
    int first, count;

    __device__ __forceinline__ PairEnd end(int r, int p, int words) const {
        return {c + static_cast<long long>(r) * p, near + static_cast<long long>(r) * words, has_twin[r] != 0};
    }
};

struct Panel {
    PanelRows i, j;
    int p, words;                       // see bit_graph.cuh
    unsigned* members;                  // (i.count, j.count), written only for separated pairs
    unsigned long long* min_r_squared;  // (i.count, j.count) bits of the smallest r^2 of each pair, or null
    unsigned long long* counters;       // see Tally
    double critical_r_squared, residual_tolerance;
};

// has_twin[r] = whether the variable first + r has no variance left given some other variable. Tests with such
// variables may be undefined, and all other scans need not check for that. Each warp takes a range of rows.
__global__ void mark_twins(const double* rows, int count, int first, int p, double residual_tolerance,
                           unsigned char* has_twin) {
    const WarpRows own(count);
    for (int r = own.first; r < own.last; ++r) {
        const double* c = rows + static_cast<long long>(r) * p;
        unsigned any = 0;
        for (int k = 0; k < p; k += LANES) {
            const unsigned twins = twins_among(c + k, min(p - k, LANES), residual_tolerance);
            any |= (first + r) / LANES == k / LANES ? twins & ~(1u << ((first + r) % LANES)) : twins;
        }
        if (warp_leader()) has_twin[r] = any != 0;
    }
}

// Tests the edges i < j between rows I and rows J. blockIdx.x is the row of i; the words of its partners are divided
// among the warps of gridDim.y thread blocks.
template <bool WITH_SMALLEST>
__global__ void __launch_bounds__(128, 8) scan_panel(const __grid_constant__ Panel panel) {
    const int p = panel.p, words = panel.words, row = blockIdx.x, i = panel.i.first + row;
    const int first = panel.j.first, last = first + panel.j.count;
    const PairEnd of_i = panel.i.end(row, p, words);
    PairScanner<WITH_SMALLEST> scanner{p, words, panel.critical_r_squared, panel.residual_tolerance};
    for (int home = max(i + 1, first) / 32 + blockIdx.y * warp_count() + warp_index(); 32 * home < last;
         home += gridDim.y * warp_count()) {
        unsigned partners = of_i.near[home] & above(i, home) & above(first - 1, home) & ~above(last - 1, home);
        for (; partners != 0; partners &= partners - 1) {
            const int j = 32 * home + __ffs(partners) - 1;
            const int member = scanner.scan(i, j, of_i, panel.j.end(j - first, p, words));
            if (warp_leader()) {
                const long long cell = static_cast<long long>(row) * panel.j.count + (j - first);
                if (WITH_SMALLEST && scanner.least < NOTHING_TESTED) {
                    panel.min_r_squared[cell] = __double_as_longlong(scanner.least);
                }
                if (member >= 0) panel.members[cell] = member;
            }
        }
    }
    const unsigned long long tests = scanner.tests(), undefined = scanner.undefined();
    if (warp_leader()) Tally{tests, undefined, 0}.add_to(panel.counters);
}
