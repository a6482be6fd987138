"""The Bot API client: connections, proxies, routes to Telegram, and what is posted to bots."""
