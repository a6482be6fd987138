"""Watching over Peik: logs now; metrics, alerts and backups listen to the same events."""
