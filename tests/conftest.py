"""Hypothesis profiles: `ci` (the default) draws the same examples every time; `explore` draws new ones."""

import os

import hypothesis

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
