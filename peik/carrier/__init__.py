"""The ways to Telegram."""
