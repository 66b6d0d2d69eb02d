"""CUDA's vocabulary for a C++ compiler (``simt.hpp``), the runtime behind it, and how kernels are built with them."""
