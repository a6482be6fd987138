"""What `test_tour` adds to a copy of Peik, and the tests that look whether it works there.

`new/` has whole files, at their places in the repository; `edits` has lines for files that are there already; the `toy_*`
modules are tests, which run in the copy only.
"""
