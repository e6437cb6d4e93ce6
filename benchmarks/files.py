"""What the file tools cost: every tool on a tree of 20,000 files and on large files, and what opening safely costs.

    python benchmarks/files.py [--quick]

Prints the median of each call, the ratio of a safe open to a plain one, and the memory that calls on large files take. Times
depend on the machine; ratios do so less.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from callgate.files import FileTools
from callgate.files.beneath import Opener, has_openat2, kernel_open, walk_open

MIB = 1024 * 1024
MEMORY = """
import sys
from callgate import FileTools
files = FileTools(sys.argv[1], state_dir=sys.argv[1] + "-state")
files.call_sync("read_file", {"path": "small.txt"})
files.call_sync("search_files", {"pattern": "x", "path": "small.txt"})
def status(word):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(word))
open("/proc/self/clear_refs", "w").write("5")  # The peak is counted anew from here.
before = status("VmRSS")
result = files.call_sync(sys.argv[2], dict(word.split("=", 1) for word in sys.argv[3:]))
print(status("VmHWM") - before, result.status)
"""


def median_s(function: Callable[[], object], *, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def build(root: Path, count: int) -> None:
    for number in range(count // 100):
        folder = root / f"package{number % 20}" / f"part{number}" / "deep"
        folder.mkdir(parents=True)
        for each in range(100):
            text = f"def function_{number}_{each}(value):\n    return value + {each}\n\n\n" * 10
            (folder / f"module{each}.{'py' if each % 2 else 'txt'}").write_text(text)
    (root / ".gitignore").write_text(
        "*.pyc\n__pycache__/\nbuild/\n/dist\n*.log\nnode_modules/\n.venv\n*.egg-info/\n!keep.log\n"
    )
    (root / "one.txt").write_text("small\n")
    (root / "large.txt").write_text("a line of text that is not very long\n" * (MIB // 37))
    (root / "huge.txt").write_text("a line of text that is not very long\n" * (100 * MIB // 37))


def tools(root: Path, count: int, repeats: int) -> None:
    files = FileTools(root, state_dir=root.parent / "state")
    one = "package3/part3/deep/module1.py"
    written = "x = 1\n" * 200

    def call(name: str, **args: object) -> Callable[[], object]:
        def made() -> object:
            result = files.call_sync(name, args)
            assert not result.is_error, result.error
            return result

        return made

    turns = iter(range(10**9))

    def edit() -> object:
        turn = next(turns)
        return call("edit_file", path="edited.py", old_string=f"turn = {turn}", new_string=f"turn = {turn + 1}")()

    (root / "edited.py").write_text("turn = 0\n" + written)
    rows = [
        ("list_files of one folder, 100 files", call("list_files", path="package3/part3")),
        (f"list_files of all {count:,} files", call("list_files")),
        (f"list_files '*.py' of all {count:,} files", call("list_files", pattern="*.py")),
        ("list_files 'package3/**/module1?.py'", call("list_files", pattern="package3/**/module1?.py")),
        ("list_files '**/**/**/*a*a*a*a*b' (explodes elsewhere)", call("list_files", pattern="**/**/**/*a*a*a*a*b")),
        ("read_file, 1 KB", call("read_file", path=one)),
        ("read_file, 1 MB", call("read_file", path="large.txt")),
        ("read_file, 100 MB, cut at 1 MiB", call("read_file", path="huge.txt")),
        (
            "read_file, lines 1,000,000 to 1,000,100 of 100 MB",
            call("read_file", path="huge.txt", start_line=10**6, end_line=10**6 + 100),
        ),
        ("search_files in one package (1,000 files)", call("search_files", pattern="function_3_99", path="package3")),
        (f"search_files in all {count:,} files", call("search_files", pattern="function_3_99\\(")),
        ("write_file, 1 KB, flushed, with backup", call("write_file", path="new.py", content=written)),
        ("write_file, 1 MB, flushed, with backup", call("write_file", path="big.py", content=written * 870)),
        ("edit_file, 1 KB, flushed, with backup", edit),
    ]
    print(f"{'p50 of a call':<56}{'ms':>10}")
    for title, function in rows:
        function()
        print(f"{title:<56}{median_s(function, repeats=repeats) * 1000:>10.2f}")


def opens(root: Path, repeats: int) -> None:
    print(f"\n{'open and close, at depth':<34}" + "".join(f"{depth:>9}" for depth in (1, 3, 5, 10, 20)))
    top = root.parent / "depths"
    plain: dict[int, float] = {}
    back_ends: list[tuple[str, Opener | None]] = [("plain os.open", None), ("O_NOFOLLOW walk", walk_open)]
    if has_openat2():
        back_ends.append(("openat2", kernel_open))
    rows: dict[str, list[str]] = {title: [] for title, _ in back_ends}
    for depth in (1, 3, 5, 10, 20):
        names = [f"folder{level}" for level in range(depth - 1)] + ["file.txt"]
        path = top.joinpath(str(depth), *names)
        path.parent.mkdir(parents=True)
        path.touch()
        folder = os.open(top / str(depth), os.O_RDONLY)

        def measured(
            title: str, opener: Opener | None, path: str = str(path), folder: int = folder, names: list[str] = names
        ) -> float:
            best = 1.0
            for _ in range(7):
                started = time.perf_counter()
                for _ in range(repeats):
                    os.close(os.open(path, os.O_RDONLY) if opener is None else opener(folder, names, os.O_RDONLY))
                best = min(best, (time.perf_counter() - started) / repeats)
            return best

        for title, opener in back_ends:
            took = measured(title, opener)
            plain[depth] = took if opener is None else plain[depth]
            rows[title].append(f"{took * 1e6:>6.1f} us" if opener is None else f"{took / plain[depth]:>7.2f} x")
        os.close(folder)
    for title, cells in rows.items():
        print(f"{title:<34}" + "".join(cells))


def memory(root: Path) -> None:
    print(f"\n{'memory that one call adds at its peak':<56}{'MiB':>10}")
    for title, words in (
        ("read_file of 100 MB", ["read_file", "path=huge.txt"]),
        ("read_file of lines in the middle of 100 MB", ["read_file", "path=huge.txt", "start_line=1000000"]),
        ("search_files of a 1 MB file", ["search_files", "path=large.txt", "pattern=not there"]),
        ("list_files of all files", ["list_files", "path=."]),
    ):
        (root / "small.txt").write_text("small\n")
        done = subprocess.run([sys.executable, "-c", MEMORY, str(root), *words], capture_output=True, text=True, check=True)
        print(f"{title:<56}{int(done.stdout.split()[0]) / 1024:>10.1f}")


def main(arguments: list[str]) -> None:
    quick = "--quick" in arguments
    base = Path(tempfile.mkdtemp(prefix="callgate-bench-"))
    try:
        root = base / "root"
        root.mkdir()
        count = 2_000 if quick else 20_000
        build(root, count)
        tools(root, count, 3 if quick else 11)
        opens(root, 300 if quick else 3_000)
        memory(root)
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main(sys.argv[1:])
