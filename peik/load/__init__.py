"""`peik load`: work at a stated rate, what became of every piece of it, how long it took, and whether the server grew."""
