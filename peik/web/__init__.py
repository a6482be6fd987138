"""What every HTTP door shares: server, connections, access, bodies, queries, answers."""
