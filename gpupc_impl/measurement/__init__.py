"""Measures methods in isolated workers, keeps their samples, and writes records."""
