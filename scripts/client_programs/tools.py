"""The tools of the service that other people's clients are tried against."""

from callgate import tool


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
