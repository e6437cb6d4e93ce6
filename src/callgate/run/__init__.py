"""The gate and its runs."""
