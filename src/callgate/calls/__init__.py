"""THE PIPELINE: the same life for every call, whatever its origin."""
