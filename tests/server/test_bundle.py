"""Modules of the page in one script: order, names, and what cannot be bundled."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from callgate.server.bundle import bundle

MODULES = {
    "app.js": 'import { twice } from "./math.js";\nimport { NAME, Counter } from "./words.js";\n\n'
    "const count = 1; // its own\nconsole.log(NAME, twice(count + 1), new Counter().next(), await Promise.resolve(7));\n",
    "math.js": '// A comment: `import nothing`.\nimport { count } from "./words.js";\n\n/** Doubles. */\n'
    "export function twice(given) {\n  return given * 2 + count;\n}\n",
    "words.js": 'export const NAME = "export const";\nexport const count = 100;\n'
    "export class Counter {\n  next() {\n    return count;\n  }\n}\nconst secret = 1;\n",
}


def test_a_bundle_does_what_its_modules_do_and_keeps_their_names_apart(tmp_path: Path, needs: Callable[[str], str]) -> None:
    node = needs("node")
    for name, text in MODULES.items():
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "package.json").write_text('{"type": "module"}', "utf-8")
    (tmp_path / "bundle.js").write_text(bundle(MODULES, "app.js"), "utf-8")
    runs = [subprocess.run([node, tmp_path / name], capture_output=True, text=True) for name in ("app.js", "bundle.js")]
    assert [run.stderr for run in runs] == ["", ""]
    assert [run.stdout for run in runs] == ["export const 104 100 7\n"] * 2


@pytest.mark.parametrize(
    ("modules", "sentence"),
    [
        ({"app.js": 'import { a } from "./a.js";\n', "a.js": 'import { b } from "./app.js";\n'}, "app.js -> a.js -> app.js"),
        ({"app.js": "export default 5;\n"}, "app.js has 'export default 5;'"),
        ({"app.js": 'import * as all from "./a.js";\n'}, "app.js has 'import [*] as all"),
        ({"app.js": 'const later = await import("./a.js");\n'}, r"app.js has 'import\('"),
    ],
)
def test_what_cannot_be_bundled_is_refused(modules: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        bundle(modules, "app.js")
