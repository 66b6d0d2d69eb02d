"""Searches that need more memory than the device has (Out-of-Core, section 4): managed memory, and blocks."""
