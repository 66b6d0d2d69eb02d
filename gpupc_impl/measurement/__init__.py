"""Measuring methods: isolated workers, samples, records."""
