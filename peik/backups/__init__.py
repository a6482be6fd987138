"""Backups: one file with everything that Peik keeps, made while it runs, tried out before it is needed, and put back.

`model` says what a backup is made of; `sqlite`, `postgres`, `redis`, `mongo` and `files` know how each is copied and put back;
`container` is the file; `service` does the whole, and `keeper` does it by the clock.
"""
