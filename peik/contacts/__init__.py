"""Chats that a bot has met: who they are, and whether they can be written to."""
