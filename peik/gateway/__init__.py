"""The gateway: `/bot<token>/<method>`, as Telegram has it, for any bot that changes one setting."""
