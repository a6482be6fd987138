"""For all tests: chance is allowed, clocks are not. A slow machine must never turn a test red."""

from hypothesis import settings

settings.register_profile("peik", deadline=None)
settings.load_profile("peik")
