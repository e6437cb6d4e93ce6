"""JSON Schema at work: what a model is shown of a schema, and what a schema says about the arguments that come back."""

from __future__ import annotations

from callgate.schema.check import check_arguments
from callgate.schema.compile import Compiled, compile_schema

__all__ = ["Compiled", "check_arguments", "compile_schema"]
