"""Erasing a person (`peik forget`): what is removed, place by place, and the acts that see it through."""
