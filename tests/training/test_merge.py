"""The average of two adapters."""

from __future__ import annotations

import numpy
import pytest
from training.merge import averaged


def test_the_average_is_exact_where_the_rank_can_hold_it() -> None:
    rng = numpy.random.default_rng(1)
    first = (rng.normal(size=(2, 16)), rng.normal(size=(12, 2)))
    second = (rng.normal(size=(2, 16)), rng.normal(size=(12, 2)))
    down, up, held = averaged(first, second, 4)
    assert numpy.allclose(up @ down, (first[1] @ first[0] + second[1] @ second[0]) / 2)
    assert held == pytest.approx(1.0)


def test_a_smaller_rank_holds_less_and_says_so() -> None:
    rng = numpy.random.default_rng(2)
    first = (rng.normal(size=(4, 16)), rng.normal(size=(12, 4)))
    second = (rng.normal(size=(4, 16)), rng.normal(size=(12, 4)))
    down, up, held = averaged(first, second, 4)
    assert (down.shape, up.shape) == ((4, 16), (12, 4))
    assert 0.4 < held < 1.0


def test_two_equal_adapters_average_to_the_same_change() -> None:
    rng = numpy.random.default_rng(3)
    one = (rng.normal(size=(3, 9)), rng.normal(size=(7, 3)))
    down, up, held = averaged(one, one, 3)
    assert numpy.allclose(up @ down, one[1] @ one[0])
    assert held == pytest.approx(1.0)
