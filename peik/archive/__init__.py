"""The archive: a registry of accounts and everything that they saw and said, on SQLite, PostgreSQL or MongoDB."""
