"""CUDA's vocabulary for a C++ compiler (``simt.hpp``), its runtime, and the build of kernels with both."""
