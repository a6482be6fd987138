"""`peik demo`: real processes play a short story of outages and crashes; the simulated Telegram's ledger does the counting."""
