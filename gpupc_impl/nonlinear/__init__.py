"""PC-stable for nonlinear data with the CMIknn test on a GPU (Hagedorn et al., "GPU Acceleration for
Information-theoretic Constraint-based Causal Discovery")."""
