"""JSON Schema at work: what a schema says about arguments. Knows nothing of any wire format."""

from __future__ import annotations

from callgate.schema.check import check_arguments

__all__ = ["check_arguments"]
