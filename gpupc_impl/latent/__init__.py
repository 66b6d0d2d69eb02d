"""Graphs with common causes that nobody measured: FCI and RFCI on the skeletons of this library (docs/latent.md)."""
