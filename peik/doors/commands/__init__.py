"""The commands of `peik` that ask something of a running Peik or of its store, one file per group."""
