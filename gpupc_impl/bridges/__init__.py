"""Offers our tests inside other packages: causal-learn, tigramite and scikit-learn (docs/bridges.md).

Each module needs its package, which ``pip install 'gpupc[bridges]'`` installs; no other module imports the bridges.
"""
