"""Verification: skeletons compared edge by edge, removed edges tested again from scratch."""
