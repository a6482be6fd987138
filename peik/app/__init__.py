"""Puts Peik together and runs it: build, lifetime, node, and the programs `peik serve` and `peik`."""
