"""The archive in a schema of a PostgreSQL database."""
