"""Where truth is kept: SQLite, PostgreSQL and Redis behind the same ports, and the move from one to another."""
