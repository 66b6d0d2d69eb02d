"""PCMCI and PCMCI+ (Runge et al. 2019; Runge 2020): causal graphs of time series, with batches of tests on a device."""
