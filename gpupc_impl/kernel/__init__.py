"""Continuous data with kernel tests of conditional independence: RCIT, RCoT and KCI in PC-stable (docs/kernel.md)."""
