"""The archive in a database of MongoDB."""
