"""`python -m proofs.mutants`: plants the bugs of mutants.toml, one at a time, and shows what catches each of them.

A proof that has never failed proves little. So each promise is broken on purpose in a copy of the source, and the seeded
world, or else a suite, must notice. The source itself is never touched.
"""
