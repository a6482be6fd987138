"""Bringing over what a bot had before Peik: its unsent messages, its people, its place in Telegram's updates."""
