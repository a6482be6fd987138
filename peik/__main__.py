"""`python -m peik` is `peik`."""

from peik.app.cli import main

main()
