"""A back-end that links operators to chats by code, and notifies them through Peik's REST API."""
