"""THE PIPELINE: the one life of a call, whoever makes it."""
