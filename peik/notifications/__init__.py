"""Users of a company, the chats that they linked, and what they are notified of."""
