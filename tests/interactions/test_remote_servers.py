"""MCP servers that Google calls by itself are refused unless a rule allows them by name."""

from __future__ import annotations

from typing import Any

import pytest
from tests.interactions.conftest import run, scene_of

from callgate import Policy, UsageError

SERVER = {"mcp_server": {"name": "weather", "url": "https://weather.test/mcp", "headers": {"x-a": "b"}}}


@pytest.mark.parametrize(
    "rules", [[], ["allow *"], ["allow @other"], ["allow @weather", "ask @weather"], ["allow @weather", "deny *"]]
)
def test_a_server_that_no_rule_allows_by_name_is_refused(rules: list[str]) -> None:
    async def story() -> None:
        with pytest.raises(UsageError, match=r"'weather' would be called by Google.*allow @weather"):
            async with scene_of([], tools=[SERVER], policy=Policy(rules=rules)):
                pass

    run(story)


def test_a_server_that_a_rule_allows_by_name_is_declared() -> None:
    async def story() -> None:
        async with scene_of(["Sunny."], tools=[SERVER], policy=Policy(rules=["allow @weather"])) as it:
            assert (await it.ask()).text == "Sunny."
            assert it.fake.creations[0]["tools"] == [
                {"type": "mcp_server", "name": "weather", "url": "https://weather.test/mcp", "headers": {"x-a": "b"}}
            ]
            assert it.fake.refusals == []

    run(story)


def test_a_policy_that_is_changed_later_is_asked_again() -> None:
    async def story() -> None:
        async with scene_of(["Sunny."], tools=[SERVER], policy=Policy(rules=["allow @weather"])) as it:
            with pytest.raises(UsageError, match="would be called by Google"):
                await it.gate.with_options(policy=Policy()).run("Go.")
            assert it.fake.requests == []

    run(story)


def test_an_unusable_server_is_an_error_at_once() -> None:
    async def story(server: Any) -> None:
        async with scene_of([], tools=[{"mcp_server": server}], policy=Policy(rules=["allow @my-server"])) as it:
            await it.ask()

    with pytest.raises(UsageError, match="takes no '-' in its name"):
        run(lambda: story({"name": "my-server", "url": "https://x.test"}))
