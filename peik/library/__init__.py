"""Peik for Python programs: one class, in this process or over REST. `from peik import Peik` is the way in."""
