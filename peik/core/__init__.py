"""The pure middle: values and rules, with no await, clock, chance, log or I/O. Time and chance come in as arguments.

Values are frozen `msgspec.Struct`s, which are made several times faster than frozen dataclasses: a letter is made tens of
thousands of times a second.
"""
