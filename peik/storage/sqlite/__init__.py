"""The store on one SQLite file: nothing to install, one machine."""
