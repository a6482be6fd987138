"""Where truth is kept, each engine behind the same port."""
