"""Hypothesis without a clock and without a folder of its own: a slow machine is no failure."""

from hypothesis import settings

settings.register_profile("core", deadline=None, database=None)
settings.load_profile("core")
