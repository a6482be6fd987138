"""How long a test waits in real time for what must come: one limit, for what hangs. No machine is as slow as that."""

PATIENCE_S = 240.0
