"""The native wire of Gemini.

Requests and answers of the API are built and read here, and only here and in `callgate.content.read` is its camelCase known.
"""

from callgate.wire.reader import ResponseReader

__all__ = ["ResponseReader"]
