"""The pure middle: values and rules, with no await, clock, chance, log or I/O."""
