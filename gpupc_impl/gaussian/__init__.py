"""The GPU methods for Gaussian data (cuPC); each method has a file, and the kernels are in ``kernels/``."""
