"""The loops that move letters: take, mark, send, judge, settle, tell."""
