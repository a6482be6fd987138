"""The inbox: what takes updates in, and what hands arrivals on. It never sends by itself: what it has to say is a letter."""
