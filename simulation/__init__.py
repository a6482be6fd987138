"""The seeded world: production code among processes that die, a network that loses, a disk that forgets, clocks that jump.

From one seed comes one life, the same to the byte of its log; `python -m simulation` plays many.
"""
