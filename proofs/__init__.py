"""Long proofs with real processes and the real pace, by command. What they show quickly is also in the tests."""
