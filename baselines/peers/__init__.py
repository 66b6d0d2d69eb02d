"""Adapters that run the authors' own programs as methods, and do not contain any of their code (docs/peers.md)."""
