// Samples in two parts whose products tensor cores add without error, or nearly so (products.py).
#include "engine/kernels/bit_graph.cuh"

constexpr int SCALE = 4032, DIGITS = 11;  // a sample x is SCALE x = a + b / 2^DIGITS, but for little
constexpr double EXACT = 2048;            // FP16 has all integers up to this one, and all even ones up to twice as much

// An integer that FP16 has. Libraries of CPU cores have no products of FP16.
#ifdef GPUPC_HOST
using Part = float;
inline Part as_part(double value) { return static_cast<float>(value); }
#else
using Part = unsigned short;
__device__ __forceinline__ Part as_part(double value) {
    Part bits;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(value));
    return bits;
}
#endif

__device__ __forceinline__ double rounded(double value) {
    const double step = fabs(value) > EXACT ? 2.0 : 1.0;
    return step * rint(value / step);
}

// Splits (p, m) standardised samples. Variable v has 3 * pitch numbers: its parts a, its parts b, and again a, each
// with zeros behind the last sample. left[0] becomes the largest sum of the squares of SCALE x - a of a variable, and
// left[1] that of 2^DIGITS (SCALE x - a) - b. Each warp takes a range of variables.
__global__ void split_samples(const double* samples, int m, int p, int pitch, Part* parts, double* left) {
    const WarpRows own(p);
    for (int v = own.first; v < own.last; ++v) {
        const double* const x = samples + static_cast<long long>(v) * m;
        Part* const to = parts + 3 * static_cast<long long>(v) * pitch;
        PerLane<double> without_b, without_both;
        each_lane(LANES, [&](int lane) {
            double first = 0.0, second = 0.0;
            for (int s = lane; s < pitch; s += LANES) {
                const double value = s < m ? SCALE * x[s] : 0.0, a = rounded(value), rest = value - a;
                const double shifted = (1 << DIGITS) * rest, b = rounded(shifted);
                to[s] = to[s + 2 * pitch] = as_part(a);
                to[s + pitch] = as_part(b);
                first += rest * rest;
                second += (shifted - b) * (shifted - b);
            }
            without_b[lane] = first;
            without_both[lane] = second;
        });
        double sums[2] = {};
        for (int lane = 0; lane < LANES; ++lane) {
            sums[0] += of_lane(without_b, lane);
            sums[1] += of_lane(without_both, lane);
        }
        for (int which = 0; which < 2 && warp_leader(); ++which) {  // Bits of numbers above zero are in their order.
            atomicMax(reinterpret_cast<long long*>(left) + which, __double_as_longlong(sums[which]));
        }
    }
}
