"""JSON Schema: the declared form of a schema, and the check of arguments against the original."""

from __future__ import annotations

from callgate.schema.check import check_arguments
from callgate.schema.compile import Compiled, compile_schema

__all__ = ["Compiled", "check_arguments", "compile_schema"]
