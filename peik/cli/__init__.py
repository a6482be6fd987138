"""What every command shares: its context, its output, and the way to a running Peik or to the store."""
