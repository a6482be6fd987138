"""Accounts of people: signing in, staying connected, seeing everything, sending. Behind a narrow port to an MTProto client."""
