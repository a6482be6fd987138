"""Moves everything from one store to another, whatever the two are.

What is stored passes through one neutral form (`records`): a stream of records per kind. Each store has one end here that
reads them in pages and writes them in batches: `sqlite_end`, `postgres_end`, `redis_end`. `move` does the moving, `ends`
keeps a store that holds only a part from being served.
"""
