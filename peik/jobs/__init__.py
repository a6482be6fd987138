"""Long work: durable, fair to users, and with nothing left behind."""
