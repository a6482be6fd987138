"""Broadcasts: one call to many chats, in the outbox a few at a time, with an end for everybody. See `engine`."""
