"""`python -m peik.testing` runs the simulated Telegram and prints one line of JSON when it listens."""

from peik.testing.server import main

main()
