"""`python -m proofs.nodes`: several nodes on one store keep every promise while they are killed, frozen and drained."""
