"""Anthropic's Claude Code."""

from __future__ import annotations

import json
from pathlib import Path

from report import BASE, TOKEN, run
from terminal import MCP, PACKAGES, Agent


class Messages(Agent):
    """Messages, our tools by MCP"""

    def env(self) -> dict[str, str]:
        return {
            "ANTHROPIC_BASE_URL": BASE, "ANTHROPIC_AUTH_TOKEN": TOKEN, "ANTHROPIC_SMALL_FAST_MODEL": "callgate",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": "callgate",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_MAX_RETRIES": "0",
        }  # fmt: skip

    def command(self, home: Path, prompt: str, model: str) -> list[str]:
        servers = {"callgate": {"type": "http", "url": MCP, "headers": {"Authorization": f"Bearer {TOKEN}"}}}
        (file := home / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        (program,) = (PACKAGES / "@anthropic-ai").glob("claude-code-linux-*/claude")
        allowed = ["--allowedTools", "Bash", "mcp__callgate__add"]
        told = ["--output-format", "stream-json", "--verbose", "--include-partial-messages"]
        return [str(program), "-p", prompt, "--model", model, "--mcp-config", str(file), *told, *allowed]

    def said(self, printed: str) -> str:
        events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        return str(next((event["result"] for event in events if event.get("type") == "result"), printed[-300:]))

    def stream(self, prompt: str) -> list[str]:
        self.said = _pieces  # type: ignore[method-assign]
        return self.text(prompt)  # type: ignore[return-value]


def _pieces(printed: str) -> list[str]:
    events = [json.loads(line).get("event", {}) for line in printed.splitlines() if line.startswith("{")]
    return [event["delta"]["text"] for event in events if event.get("delta", {}).get("type") == "text_delta"]


run([Messages])
