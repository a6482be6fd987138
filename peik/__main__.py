"""`python -m peik` is `peik`."""

from peik.doors.cli import main

main()
