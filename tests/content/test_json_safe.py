"""Values of any kind as JSON: nothing that a value does comes out, and numbers stay numbers."""

from __future__ import annotations

from typing import Any

import pytest

from callgate.content.json_safe import json_safe


def test_a_number_whose_plain_form_is_itself_is_written() -> None:
    numpy = pytest.importorskip("numpy")
    assert json_safe(numpy.longdouble(1.5)).value == 1.5
    assert json_safe([numpy.longdouble("0.1")]).value in (["0.1"], [0.1]), "not every machine has more digits than a double"


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, RecursionError, MemoryError])
def test_a_value_cannot_end_the_program(error: type[BaseException]) -> None:
    class Hostile:
        def to_dict(self) -> Any:
            raise error

    assert "unserialisable" in json_safe([Hostile()]).value[0]
