"""Settings: the one table of them, how values are read, and all of them as one frozen value."""
