"""A pytest plugin: every event loop that a test starts is one of uvloop.

python -m pytest -p scripts.on_uvloop tests/run
"""

from __future__ import annotations

import asyncio

import pytest
import uvloop


def pytest_configure() -> None:
    """In every process that runs tests; what they start as programs of their own keeps asyncio's loop."""
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


def pytest_report_header() -> str:
    """Says so at the top."""
    return f"event loop: uvloop {uvloop.__version__}"


def pytest_runtest_setup() -> None:
    """No test may have put another policy in its place for those after it."""
    if not isinstance(asyncio.get_event_loop_policy(), uvloop.EventLoopPolicy):
        pytest.fail("a test before this one has changed the policy of event loops", pytrace=False)
