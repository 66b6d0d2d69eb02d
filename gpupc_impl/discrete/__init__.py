"""The GPU methods of the gpuPC paper for discrete data: one file a method, kernels in ``kernels/``."""
