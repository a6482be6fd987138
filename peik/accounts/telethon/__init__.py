"""The MTProto client port, on Telethon."""
