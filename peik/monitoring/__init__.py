"""How Peik is doing: logs, figures, metrics, the overview, and `peik doctor`. All of it listens; none of it decides."""
