"""Recurring work: letters, broadcasts and jobs by cron, each due time once."""
