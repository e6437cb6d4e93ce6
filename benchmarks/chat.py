"""The first minutes of `make chat` with the embedded model: thirty ordinary requests in a folder of sample files.

Each request is one exchange of one conversation, or with `--fresh` a conversation of its own, and must end in one of the
accepted calls or in an honest sentence. Calls that write are approved, in a folder that is thrown away.

    python benchmarks/chat.py                  one conversation; ends with 1 if a request went wrong
    python benchmarks/chat.py --fresh          thirty conversations
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from callgate import Gate, Reply
from callgate.cli.demo_tools import HONEST_TOOLS
from callgate.errors import CallgateError
from callgate.files import FileTools
from callgate.models.embedded import EmbeddedModel

DATA = Path(__file__).parent / "data" / "chat_requests.json"


def lay_out(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def is_right(case: dict[str, Any], reply: Reply) -> bool:
    made = [[record.call.name, dict(record.call.args)] for record in reply.calls]
    if "calls" in case:
        return made[:1] in [[call] for call in case["calls"]]
    return not made and any(word in reply.text.lower() for word in case["words"].split("|"))


async def approve(call: Any, definition: Any, reason: str) -> str:
    return "yes"


async def main(options: argparse.Namespace) -> int:
    given = json.loads(DATA.read_text("utf-8"))
    model, wrong, seconds = EmbeddedModel(announce=False), 0, list[float]()
    for number, case in enumerate(given["cases"]):
        with tempfile.TemporaryDirectory() as folder:
            lay_out(Path(folder), given["files"])
            tools = [FileTools(folder), *HONEST_TOOLS]
            async with Gate(model, tools=tools, approve=approve) as gate:
                session = f"fresh-{number}" if options.fresh else "talk"
                start = time.monotonic()
                reply = await gate.run(case["prompt"], session=session)
        seconds.append(time.monotonic() - start)
        right = is_right(case, reply)
        wrong += not right
        made = ", ".join(f"{record.call.name}({json.dumps(dict(record.call.args))})" for record in reply.calls)
        print(
            f"{'right' if right else 'WRONG':<6}{seconds[-1]:5.1f} s  {case['prompt']}  ->  {made}  {reply.text[:100]!r}",
            flush=True,
        )
    seconds.sort()
    middle, count = seconds[len(seconds) // 2], len(seconds)
    print(f"{count - wrong} of {count} right; median {middle:.1f} s, longest {seconds[-1]:.1f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fresh", action="store_true", help="each request in a conversation of its own")
    try:
        sys.exit(asyncio.run(main(parser.parse_args())))
    except CallgateError as error:
        print(f"chat: not measured: {error}")
