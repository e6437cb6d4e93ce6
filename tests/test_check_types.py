"""The check of the types of examples and blocks of the docs: planted mistakes are found, on the lines where they are."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent

PAGE = """# A page

```python
# names.py
def name() -> str:
    return "Ada"
```

```python
from names import name

length: int = name()
```

<!-- not run: the package is not installed -->
```python
import no_such_package

no_such_package.run(1)
```
"""


@pytest.fixture(scope="module")
def check_types() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_types", ROOT / "scripts" / "check_types.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with mistakes in a page, in an example and in the file of mistakes."""
    for folder in ("docs/howto", "examples", "tests/typing"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "README.md").write_text("# Empty\n")
    (tmp_path / "docs/howto/page.md").write_text(PAGE)
    (tmp_path / "examples/one.py").write_text("text: str = 1\n")
    (tmp_path / "tests/typing/mistakes.py").write_text("a: int = ''  # expect\nb: int = 1  # expect\n")
    return tmp_path


@pytest.mark.parametrize("checker", ["pyright", "mypy"])
def test_mistakes_are_found_where_they_are(check_types: ModuleType, tree: Path, checker: str):
    found = check_types.problems(tree, tree / "build", [checker])
    assert [problem.split(": ")[0] for problem in found] == [
        "docs/howto/page.md:12", "examples/one.py:1", "tests/typing/mistakes.py:2",
    ]  # fmt: skip
    assert found[-1] == f"tests/typing/mistakes.py:2: the checker does not see this mistake ({checker})"


def test_two_blocks_with_the_same_name_are_refused(check_types: ModuleType, tree: Path):
    (tree / "README.md").write_text(PAGE)
    with pytest.raises(SystemExit, match=r"two blocks are named names\.py"):
        check_types.write_blocks(tree, tree / "build")


def test_a_checker_that_cannot_do_its_work_is_no_success(check_types: ModuleType):
    with pytest.raises(SystemExit, match="check_types: mypy failed"):
        check_types.output_of("mypy", "--no-such-option")


def test_a_clean_tree_has_no_problems(check_types: ModuleType, tree: Path):
    (tree / "docs/howto/page.md").write_text(PAGE.replace("length: int = name()", "length: int = len(name())"))
    (tree / "examples/one.py").write_text("text: str = ''\n")
    (tree / "tests/typing/mistakes.py").write_text("a: int = ''  # expect\n")
    assert check_types.problems(tree, tree / "build", ["pyright", "mypy"]) == []
