"""The pages that docs/generate.py writes, one to a file: each is made of a table of the code, or of what a run wrote down."""
