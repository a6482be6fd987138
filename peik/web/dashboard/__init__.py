"""What every page of the dashboard shares: rendering, fields, static files. Pages work without JavaScript."""
