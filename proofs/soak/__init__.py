"""The soak: many bots for a long time on a bad network, with a server that is killed; and whether it grows."""
