"""Google's Gemini CLI."""

from __future__ import annotations

import json
from pathlib import Path

from report import BASE, TOKEN, run
from terminal import MCP, NODE, PACKAGES, Agent


class Generate(Agent):
    """generateContent, our tools by MCP"""

    def env(self) -> dict[str, str]:
        return {"GEMINI_API_KEY": TOKEN, "GOOGLE_GEMINI_BASE_URL": BASE, "GEMINI_CLI_TRUST_WORKSPACE": "true"}

    def command(self, home: Path, prompt: str, model: str) -> list[str]:
        folder = home / ".gemini"
        folder.mkdir()
        server = {"httpUrl": MCP, "headers": {"Authorization": f"Bearer {TOKEN}"}, "trust": True}
        settings = {
            "mcpServers": {"callgate": server},
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"disableAutoUpdate": True},
        }
        (folder / "settings.json").write_text(json.dumps(settings))
        program = str(PACKAGES / "@google" / "gemini-cli" / "bundle" / "gemini.js")
        return [NODE, program, "-m", model, "--yolo", "--output-format", "stream-json", "-p", prompt]

    def said(self, printed: str) -> str:
        return "".join(_pieces(printed)).strip()

    def stream(self, prompt: str) -> list[str]:
        self.said = _pieces  # type: ignore[method-assign]
        return self.text(prompt)  # type: ignore[return-value]


def _pieces(printed: str) -> list[str]:
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return [event["content"] for event in events if event.get("type") == "message" and event.get("role") == "assistant"]


run([Generate])
