"""For all tests: chance is allowed, clocks are not. A slow machine must never turn a test red."""

import signal

from hypothesis import settings

settings.register_profile("peik", deadline=None)
settings.load_profile("peik")

# A shell that starts a job in the background lets it ignore Ctrl-C, and so would every program that a test starts and ends
# with it. What is caught here is back at its default in them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
