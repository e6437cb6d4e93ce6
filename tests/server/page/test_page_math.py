"""Formulas: TeX in, MathML out; what is not known stays as it was written."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.slow

READ = """async (formulas) => {
  const { formula } = await import("/static/math.js");
  // Without what only says how an operator is set.
  const bare = (node) => { for (const each of [node, ...node.querySelectorAll("*")])
    for (const { name } of [...each.attributes]) if (name !== "class") each.removeAttribute(name); return node; };
  return formulas.map((tex) => { const made = formula(tex, true); return made && bare(made).innerHTML; });
}"""

DRAWN = {
    "x": "<mi>x</mi>",
    r"\frac12": "<mfrac><mn>1</mn><mn>2</mn></mfrac>",
    "x^23": "<mrow><msup><mi>x</mi><mn>2</mn></msup><mn>3</mn></mrow>",
    "x_i'^2": "<msubsup><mi>x</mi><mi>i</mi><mrow><mo>′</mo><mn>2</mn></mrow></msubsup>",
    r"\sqrt[3]{x}": "<mroot><mi>x</mi><mn>3</mn></mroot>",
    r"\sum_{i=1}^n i": (
        "<mrow><munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover><mi>i</mi></mrow>"
    ),
    r"\int_0^\infty": "<msubsup><mo>∫</mo><mn>0</mn><mi>∞</mi></msubsup>",
    r"\sin x": "<mrow><mrow><mi>sin</mi><mspace></mspace></mrow><mi>x</mi></mrow>",
    r"\sin(x)": "<mrow><mi>sin</mi><mo>(</mo><mi>x</mi><mo>)</mo></mrow>",
    r"\mathbb{R}^n": "<msup><mi>ℝ</mi><mi>n</mi></msup>",
    r"\left\{a\middle|b\right.": "<mrow><mo>{</mo><mi>a</mi><mo>|</mo><mi>b</mi></mrow>",
    r"a \le b \text{ if } c": "<mrow><mi>a</mi><mo>≤</mo><mi>b</mi><mtext>\u00a0if\u00a0</mtext><mi>c</mi></mrow>".replace(
        "\u00a0", "&nbsp;"
    ),
    r"\begin{pmatrix}1&2\\3&4\end{pmatrix}": (
        "<mrow><mo>(</mo><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr>"
        "<mtr><mtd><mn>3</mn></mtd><mtd><mn>4</mn></mtd></mtr></mtable><mo>)</mo></mrow>"
    ),
    r"a &= b \\[4pt] &= c": (
        '<mtable class="aligned"><mtr><mtd><mi>a</mi></mtd><mtd><mo>=</mo><mi>b</mi></mtd></mtr>'
        "<mtr><mtd></mtd><mtd><mo>=</mo><mi>c</mi></mtd></mtr></mtable>"
    ),
    r"\text{<b>}": "<mtext>&lt;b&gt;</mtext>",
}

KEPT = [
    r"\unheard{x}", r"\frac{1}", "{", "}", "x^1^2", r"\left(x", r"\begin{matrix}a", r"\begin{matrix}a\end{cases}",
    r"\href{javascript:alert(1)}{x}", r"\text{a\b}", "a\u202eb", "x%", r"\constructor", r"\begin{toString}\end{toString}",
    "{" * 100 + "}" * 100, r"\sqrt" * 200 + "x", "x" * 5000,
]  # fmt: skip


def test_a_formula_is_drawn_as_it_is_meant(person: Any) -> None:
    drawn = person.page.evaluate(READ, list(DRAWN))
    assert dict(zip(DRAWN, drawn, strict=True)) == DRAWN


def test_a_formula_with_something_unknown_is_left_alone(person: Any) -> None:
    drawn = person.page.evaluate(READ, KEPT)
    assert {tex[:40]: made for tex, made in zip(KEPT, drawn, strict=True) if made is not None} == {}
