"""Measurements of Peik beside its ceilings, in one run on one machine. `python -m bench.quick` prints them."""
