"""Forgetting a person: what goes, place by place, and the acts that see it through."""
