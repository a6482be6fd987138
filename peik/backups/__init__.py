"""Backups: one file with everything that Peik keeps, made while it runs, tried out before it is needed, and put back.

`parts` says what a backup is made of; `sqlite`, `postgres`, `redis`, `mongo` and `folders` know how each is copied and put
back; `container` and `sealing` are the file, `manifest` what stands at its beginning; `desk` does the whole, and `keeper` does
it by the clock.
"""
