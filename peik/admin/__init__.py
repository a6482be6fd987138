"""The people who run Peik and the keys they give out: who may do what, that they are signed in, and what they did."""
