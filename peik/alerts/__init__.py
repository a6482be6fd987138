"""Alerts: what the people who run Peik should hear of, by which ways, and when it is over."""
