"""Adapters that run the authors' own programs as methods, and contain none of their code (docs/peers.md)."""
