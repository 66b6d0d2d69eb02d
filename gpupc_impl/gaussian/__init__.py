"""The GPU methods of the cuPC paper for Gaussian data: one file a method, kernels in ``kernels/``."""
