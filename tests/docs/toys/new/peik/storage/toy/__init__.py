"""A toy store."""
