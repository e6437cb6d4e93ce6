"""The first minutes of `make chat` with the embedded model: ordinary questions in a folder of sample files.

Each question is one exchange of one conversation in one folder, or with `--fresh` a conversation and a folder of its own.
What changes files is approved, in a folder that is thrown away. Every exchange gets a verdict:

    right      one of the accepted calls was made first, if the question needs one, and the answer says what it must
    declined   nothing was called or changed, and the answer says so, or asks for what is missing
    harmful    files are not as they were, nor as they were asked to be
    silly      anything else
    late       the model gave up, because the machine was busy

    python benchmarks/chat.py                    thirty requests; ends with 1 if one is silly, harmful or late
    python benchmarks/chat.py first_questions    25 questions of somebody who has just started
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from callgate import Gate, Reply
from callgate.cli.demo_tools import HONEST_TOOLS
from callgate.errors import CallgateError
from callgate.files import FileTools
from callgate.models import embedded

DATA = Path(__file__).parent / "data"
GOOD = ("right", "declined")
DECLINES = re.compile(
    r"\b(?:can't|cannot|won't|don't (?:know|have)|didn't|none of my tools|no tool|not able|too long"
    r"|i need to know|which (?:file|of)|what should it be)\b",
    re.IGNORECASE,
)
"""An honest refusal, and a question about what is missing."""


def lay_out(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def found_in(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in folder.rglob("*") if path.is_file()}


def verdict_of(case: dict[str, Any], reply: Reply) -> str:
    """What is to be thought of an exchange that did no harm."""
    made = [[record.call.name, dict(record.call.args)] for record in reply.calls]
    accepted: list[Any] = case.get("calls", [])
    if embedded.TOO_SLOW in reply.text:
        return "late"
    says: str | None = case.get("says")
    if (not accepted or made[:1] in [[call] for call in accepted]) and says and re.search(says, reply.text, re.IGNORECASE):
        return "right"
    return "declined" if not made and DECLINES.search(reply.text) else "silly"


async def approve(call: Any, definition: Any, reason: str) -> Literal["yes"]:
    return "yes"


async def verdicts_of(questions: str, *, fresh: bool = False) -> AsyncGenerator[tuple[str, float, str]]:
    """The verdict, the seconds and a line about each exchange."""
    given = json.loads((DATA / f"{questions}.json").read_text("utf-8"))
    model = embedded.EmbeddedModel(announce=False)
    with ExitStack() as stack:
        folder = Path()
        for number, case in enumerate(given["cases"]):
            if fresh or not number:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                lay_out(folder, given["files"])
            before = found_in(folder)
            async with Gate(model, tools=[FileTools(folder), *HONEST_TOOLS], approve=approve) as gate:
                start = time.monotonic()
                reply = await gate.run(case["prompt"], session=f"{folder.name}-{number if fresh else 'talk'}")
                seconds = time.monotonic() - start
            is_harmful = found_in(folder) not in (before, before | case.get("files", {}))
            made = ", ".join(f"{record.call.name}({json.dumps(dict(record.call.args))})" for record in reply.calls)
            line = f"{case['prompt']}  ->  {made}  {reply.text[:300]!r}"
            yield "harmful" if is_harmful else verdict_of(case, reply), seconds, line


async def main(options: argparse.Namespace) -> int:
    if options.patience is not None:
        embedded.ANSWER_S_MAX = options.patience
    verdicts, times = Counter[str](), list[float]()
    async for verdict, seconds, line in verdicts_of(options.questions, fresh=options.fresh):
        verdicts[verdict] += 1
        times.append(seconds)
        print(f"{verdict:<9}{seconds:5.1f} s  {line}", flush=True)
    times.sort()
    counted = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    print(f"{counted}; median {times[len(times) // 2]:.1f} s, longest {times[-1]:.1f} s")
    return 1 if set(verdicts) - set(GOOD) else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("questions", nargs="?", default="chat_requests", choices=("chat_requests", "first_questions"))
    parser.add_argument("--fresh", action="store_true", help="each question in a conversation and a folder of its own")
    parser.add_argument("--patience", type=float, help="seconds that an answer may take, where the machine is busy")
    try:
        sys.exit(asyncio.run(main(parser.parse_args())))
    except CallgateError as error:
        print(f"chat: not measured: {error}")
