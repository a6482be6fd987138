"""A toy slice: how many toys there are."""
