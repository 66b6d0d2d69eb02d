"""Verification compares skeletons edge by edge and tests removed edges again from scratch."""
