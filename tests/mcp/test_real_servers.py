"""Servers of other people's making: listed, declared, called with good and with bad arguments."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from typing import Any

import pytest

from callgate import McpServer, ToolError, declare
from callgate.types import ToolContext


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mcp_server_time") is None, reason="mcp-server-time is not installed")
def test_the_time_server_is_listed_declared_and_called():
    async def story() -> tuple[Any, ...]:
        box = McpServer("time", command=[sys.executable, "-m", "mcp_server_time"], start_s=60)
        await box.start(story)
        context = ToolContext(call_id="1", name="convert_time", timeout_s=30)
        args = {"source_timezone": "Asia/Tokyo", "time": "16:30", "target_timezone": "UTC"}
        value = await box.call("convert_time", args, context)
        with pytest.raises(ToolError) as raised:
            await box.call("convert_time", args | {"time": "25 o'clock"}, context)
        declared = declare([tool.definition for tool in box.runnables()])
        await box.aclose(story)
        return value, str(raised.value), declared

    value, error, declared = asyncio.run(story())
    assert value["target"]["datetime"].endswith("T07:30:00+00:00")
    assert "Invalid time format" in error
    assert (sorted(declared.names), declared.quarantined) == (["convert_time", "get_current_time"], {})
    # Titles of schemas are left out for every tool; nothing else may be lost of these.
    assert {loss.keyword for loss in declared.losses} == {"title"}
