"""Code that all families share on a device: the graph between levels, keys of separating sets, combinations."""
