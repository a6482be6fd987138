"""The first hour of four owners of systems that Peik replaces: what each types first, in the words of what they have, and what
comes of it. Real programs, MongoDB and Redis; only Telegram is the simulated one. `python -m tests.first_hours` keeps what they
printed in docs/first-hours.md, and a test holds the page to it."""
