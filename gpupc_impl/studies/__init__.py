"""Studies: many searches of the same data, over a grid of alphas or over resamples."""
