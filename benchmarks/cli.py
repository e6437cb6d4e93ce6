"""What the command costs before it is of any use: processor time to the first prompt, and for the help of every command.

The conversation runs in a terminal of its own; its processor time is read the moment the prompt stands there, with the demo
and with a key for Gemini (nothing is sent). Help runs in fresh processes. Each figure is the median of several runs.

    python benchmarks/cli.py         ends with 1 if a goal is missed
"""

from __future__ import annotations

import os
import re
import resource
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping

ROUNDS = 7
PROMPT_S_MAX = 0.5
HELP_S_MAX = 0.4
PATIENCE_S = 60.0
# Between the two the prompt is drawn, and behind it the cursor is shown.
READY = re.compile(rb"leaves\..*\x1b\[\?25h", re.DOTALL)

PROVIDERS: Mapping[str, Mapping[str, str]] = {
    "demo": {"CALLGATE_PROVIDER": "demo"},
    "gemini": {"CALLGATE_PROVIDER": "", "GEMINI_API_KEY": "not-a-key"},
}


def environment(folder: str, **more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GOOGLE_", "GEMINI_", "OPENAI_"))}
    return kept | {"TERM": "xterm-256color", "XDG_STATE_HOME": folder, **more}


def seconds_to_prompt(more: Mapping[str, str]) -> float:
    """Processor time of a conversation up to its first prompt."""
    with tempfile.TemporaryDirectory() as folder:
        master, slave = os.openpty()
        command = [sys.executable, "-m", "callgate", "chat"]
        running = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment(folder, **more), start_new_session=True
        )
        os.close(slave)
        try:
            seen, deadline = b"", time.monotonic() + PATIENCE_S
            while not READY.search(seen):
                if not select.select([master], [], [], max(0.0, deadline - time.monotonic()))[0]:
                    raise SystemExit(f"there is no prompt: {seen!r}")
                seen += os.read(master, 65_536)
            return used_s(running.pid)
        finally:
            os.write(master, b"\x04")
            running.wait(timeout=PATIENCE_S)
            os.close(master)


def used_s(pid: int) -> float:
    """Processor time that a process has used so far."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def seconds_of_help(*words: str) -> float:
    """Processor time of one `--help`, from the start of its process to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "callgate", *words, "--help"], capture_output=True, check=True, timeout=PATIENCE_S)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def commands() -> list[tuple[str, ...]]:
    """Every command and subcommand that there is."""
    import click

    from callgate.cli import COMMANDS, cli

    found: list[tuple[str, ...]] = [(), *((name,) for name in COMMANDS)]
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        if isinstance(command, click.Group):
            found += [(name, inner) for inner in command.commands]
    return found


def main() -> int:
    missed = False
    for name, more in PROVIDERS.items():
        median = statistics.median(seconds_to_prompt(more) for _ in range(ROUNDS))
        missed = missed or median > PROMPT_S_MAX
        print(f"first prompt ({name:<6})  {median:.3f} s of processor time (goal: at most {PROMPT_S_MAX:g})")
    helps = {words: statistics.median(seconds_of_help(*words) for _ in range(3)) for words in commands()}
    slowest = max(helps, key=lambda words: helps[words])
    missed = missed or helps[slowest] > HELP_S_MAX
    most = f"at most {helps[slowest]:.3f} s: {' '.join(slowest)}"
    print(f"--help of {len(helps)} commands  {most} (goal: at most {HELP_S_MAX:g})")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
