"""Peik beside MTProto clients: what they missed while they were away. Each module needs its own extra."""
