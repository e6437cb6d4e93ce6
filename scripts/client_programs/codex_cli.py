"""OpenAI's Codex CLI."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType

from report import BASE, TOKEN, run
from terminal import MCP, NODE, PACKAGES, Agent


class Responses(Agent):
    """Responses, our tools by MCP"""

    lacks = MappingProxyType({"stream": "it prints whole messages"})

    def env(self) -> dict[str, str]:
        return {"CALLGATE_TOKEN": TOKEN}

    def command(self, home: Path, prompt: str, model: str) -> list[str]:
        folder = home / ".codex"
        folder.mkdir()
        (folder / "config.toml").write_text(
            f'model = "{model}"\nmodel_provider = "callgate"\n'
            f'[model_providers.callgate]\nname = "callgate"\nbase_url = "{BASE}/v1"\nwire_api = "responses"\n'
            'env_key = "CALLGATE_TOKEN"\nrequest_max_retries = 0\nstream_max_retries = 0\n'
            f'[mcp_servers.callgate]\nurl = "{MCP}"\nbearer_token_env_var = "CALLGATE_TOKEN"\n'
        )
        program = str(PACKAGES / "@openai" / "codex" / "bin" / "codex.js")
        options = ["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        return [NODE, program, *options, prompt]

    def said(self, printed: str) -> str:
        events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        told = [event["item"]["text"] for event in events if event.get("item", {}).get("type") == "agent_message"]
        return told[-1] if told else printed[-300:]


run([Responses])
