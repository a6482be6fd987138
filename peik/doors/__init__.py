"""The doors translate only: parse, ask the desk, render. No rule lives here."""
