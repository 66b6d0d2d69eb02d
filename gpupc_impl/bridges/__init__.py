"""Offers our tests inside other packages: causal-learn, tigramite and scikit-learn (docs/bridges.md). Each module needs
its package, which the extra ``bridges`` installs; no other module imports the bridges."""
