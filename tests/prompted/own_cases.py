# ruff: noqa: E501 - a table of texts reads better unbroken
"""Further outputs of models, with the answers that the rules give; written down before the parser was run on them.

Each row: what it shows, the text, the calls, the text that is left, the errors.
"""

from __future__ import annotations

from typing import Any

Case = tuple[str, str, list[tuple[str, dict[str, Any]]], str, list[tuple[str, str]]]

N1, N2 = ("echo", {"n": 1}), ("echo", {"n": 2})
C1, C2 = 'TOOL_CALL: echo({"n": 1})', 'TOOL_CALL: echo({"n": 2})'

CASES: list[Case] = [
    # Where a marker counts.
    ("full-width colon", 'TOOL_CALL： echo({"n": 1})', [N1], "", []),
    ("blank before the colon", 'TOOL_CALL : echo({"n": 1})', [N1], "", []),
    ("lower case is no marker", 'tool_call: echo({"n": 1})', [], 'tool_call: echo({"n": 1})', []),
    ("byte order mark before it", f"\ufeff{C1}", [N1], "", []),
    ("zero-width space before it", f"\u200b{C1}", [N1], "", []),
    ("numbered list", f"1. {C1}\n2) {C2}", [N1, N2], "", []),
    ("plus and star bullets", f"+ {C1}\n* {C2}", [N1, N2], "", []),
    ("bullet and bold", '- **TOOL_CALL:** echo({"n": 1})', [N1], "", []),
    ("two bullets are not one", f"- - {C1}", [], f"- - {C1}", []),
    ("a quotation in a list", f"- > {C1}", [], f"- > {C1}", []),
    ("second heading level", f"## {C1}", [], f"## {C1}", []),
    ("three on a line", f"{C1}; {C2}, TOOL_CALL: noop()", [N1, N2, ("noop", {})], "", []),
    ("bold ones side by side", f"**{C1}** **{C2}**", [N1, N2], "", []),
    ("words between two", f"{C1} and {C2}", [N1], f"and {C2}", []),
    ("italic is no bold", f"*{C1}*", [], f"*{C1}*", []),
    ("bare marker amid text", "a\nTOOL_CALL:\nb", [], "a\nTOOL_CALL:\nb", []),
    ("doubled marker", f"TOOL_CALL: {C1}", [], f"TOOL_CALL: {C1}", []),
    ("call after a sentence in CJK", "好的。TOOL_CALL: noop({})", [], "好的。TOOL_CALL: noop({})", [("midline_call", "noop")]),
    ("question before a call", "Shall I? TOOL_CALL: noop({})", [], "Shall I? TOOL_CALL: noop({})", [("midline_call", "noop")]),
    ("mid-line call of an unknown tool", "Ok. TOOL_CALL: nope({})", [], "Ok. TOOL_CALL: nope({})", []),
    ("mid-line call that is not complete", "Ok. TOOL_CALL: noop({", [], "Ok. TOOL_CALL: noop({", []),
    ("mid-line call and more text", "Ok. TOOL_CALL: noop({}) is it.", [], "Ok. TOOL_CALL: noop({}) is it.", []),
    ("mid-line call in a quotation", "> Ok. TOOL_CALL: noop({})", [], "> Ok. TOOL_CALL: noop({})", []),
    ("comma before a call", "Well, TOOL_CALL: noop({})", [], "Well, TOOL_CALL: noop({})", []),
    # What hides calls.
    ("thought over lines", f"<think>\n{C1}\n</think>\n{C2}", [N2], f"<think>\n{C1}\n</think>", []),
    ("thinking, not closed", f"<thinking>\nhm\n{C1}", [], f"<thinking>\nhm\n{C1}", []),
    ("a call behind a thought's end", f"<think>a</think>{C1}", [], f"<think>a</think>{C1}", []),
    ("thought on one line, then a call", f"<think>a</think>\n{C1}", [N1], "<think>a</think>", []),
    ("comment over lines", f"<!--\n{C1}\n-->\n{C2}", [N2], f"<!--\n{C1}\n-->", []),
    ("comment ends and text follows", f"<!-- a\n{C1} --> x\n{C2}", [N2], f"<!-- a\n{C1} --> x", []),
    ("a tag in inline code opens nothing", f"The `<think>` tag.\n{C1}", [N1], "The `<think>` tag.", []),
    ("thought inside arguments", 'TOOL_CALL: echo({"s": "<think>"})\n' + C1, [("echo", {"s": "<think>"}), N1], "", []),
    ("fence tagged json", f"```json\n{C1}\n```", [N1], "", []),
    ("fence tagged text, blank lines inside", f"```text\n\n{C1}\n\n{C2}\n\n```", [N1, N2], "", []),
    ("longer backtick fence", f"````tool_call\n{C1}\n````", [N1], "", []),
    ("plain fence that is not closed", f"```\n{C1}", [], f"```\n{C1}", []),
    ("plain tilde fence", f"~~~\n{C1}\n~~~", [], f"~~~\n{C1}\n~~~", []),
    ("empty fence stays", "a\n```\n```\nb", [], "a\n```\n```\nb", []),
    ("fence with prose behind the call", f"```\n{C1} # run\n```", [], f"```\n{C1} # run\n```", []),
    ("bash fence then prose then a call", f"```bash\n{C1}\n```\nNow:\n{C2}", [N2], f"```bash\n{C1}\n```\nNow:", []),
    ("fence over a call of several lines", '```\nTOOL_CALL: echo({\n  "n": 1\n})\n```\nok', [N1], "ok", []),
    ("unwrapped fence between blank lines", f"a\n\n```\n{C1}\n```\n\nb", [N1], "a\n\nb", []),
    ("shorter run does not close", f"````\n```\n{C1}\n```\n````\n{C2}", [N2], f"````\n```\n{C1}\n```\n````", []),
    # Names.
    ("name in double quotes", 'TOOL_CALL: "echo"({"n": 1})', [N1], "", []),
    ("name in single quotes", "TOOL_CALL: 'noop'()", [("noop", {})], "", []),
    ("leaked namespace", 'TOOL_CALL: default_api.echo({"n": 1})', [N1], "", []),
    ("leaked namespace of an unknown tool", "TOOL_CALL: functions.nope({})", [], "", [("unknown_tool", "functions.nope")]),
    ("unknown tool beside a known one", f"TOOL_CALL: nope({{}})\n{C1}", [N1], "", [("unknown_tool", "nope")]),
    ("print with a text", "TOOL_CALL: print(default_api.echo(s='a, b)'))", [("echo", {"s": "a, b)"})], "", []),
    ("name and a full stop", "TOOL_CALL: noop.", [], "", [("bad_syntax", "noop")]),
    ("name alone between lines", "a\nTOOL_CALL: noop\nb", [], "a\nb", [("bad_syntax", "noop")]),
    ("blank before the parenthesis", 'TOOL_CALL: echo ({"n": 1})', [N1], "", []),
    # Forms.
    ("object with arguments", 'TOOL_CALL: {"name": "echo", "arguments": {"n": 1}}', [N1], "", []),
    ("object with input", 'TOOL_CALL: {"name": "echo", "input": {"n": 1}} ok', [N1], "ok", []),
    ("object with encoded parameters", 'TOOL_CALL: {"name": "echo", "parameters": "{\\"n\\": 1}"}', [N1], "", []),
    ("object with a null", 'TOOL_CALL: {"name": "noop", "args": null}', [("noop", {})], "", []),
    ("object of an unknown tool", 'TOOL_CALL: {"name": "x", "args": {}}', [], "", [("unknown_tool", "x")]),
    ("object with a list", 'TOOL_CALL: {"name": "echo", "args": [1]}', [], "", [("bad_arguments", "echo")]),
    ("missing parenthesis at the end", 'TOOL_CALL: echo({"n": 1}', [N1], "", []),
    ("missing parenthesis before a line", 'TOOL_CALL: echo({"n": 1}\nAfter.', [N1], "After.", []),
    ("missing parenthesis before a call", 'TOOL_CALL: echo({"n": 1}\n' + C2, [N1, N2], "", []),
    ("parenthesis on the next line", 'TOOL_CALL: echo({"n": 1}\n)\nok', [N1], "ok", []),
    ("pretty-printed", 'TOOL_CALL: echo(\n  {\n    "n": 1\n  }\n)', [N1], "", []),
    ("braces alone over lines", 'TOOL_CALL: echo {\n  "n": 1\n}\nok', [N1], "ok", []),
    # Repairs.
    ("comments", 'TOOL_CALL: echo({"n": 1, // it\'s (\n /* ) */ "u": "http://a"})', [("echo", {"n": 1, "u": "http://a"})], "", []),
    ("trailing comma in a list", 'TOOL_CALL: echo({"a": [1, 2,],})', [("echo", {"a": [1, 2]})], "", []),
    ("typographic quotes", "TOOL_CALL: echo({“s”: “a) it’s”})", [("echo", {"s": "a) it’s"})], "", []),
    ("typographic quotes inside plain ones", 'TOOL_CALL: echo({"s": "“x”"})', [("echo", {"s": "“x”"})], "", []),
    ("keywords", "TOOL_CALL: echo(a=1, b='x', c=[True, None], d={'k': (1,)})",
     [("echo", {"a": 1, "b": "x", "c": [True, None], "d": {"k": [1]}})], "", []),
    ("keyword with an expression", "TOOL_CALL: echo(a=1+1)", [], "", [("bad_arguments", "echo")]),
    ("keyword that calls", "TOOL_CALL: echo(a=open('x'))", [], "", [("bad_arguments", "echo")]),
    ("triple quotes over lines", 'TOOL_CALL: echo(s="""a "q"\nb)""")', [("echo", {"s": 'a "q"\nb)'})], "", []),
    ("fence over lines in parentheses", 'TOOL_CALL: echo(\n```json\n{"n": 1}\n```\n)', [N1], "", []),
    ("tab in a string", 'TOOL_CALL: echo({"s": "a\tb"})', [("echo", {"s": "a\tb"})], "", []),
    ("lone surrogate", 'TOOL_CALL: echo({"s": "a\\ud800b"})', [("echo", {"s": "a\ufffdb"})], "", []),
    ("null in Python", "TOOL_CALL: noop(None)", [("noop", {})], "", []),
    ("escaped backslash before a quote", 'TOOL_CALL: echo({"s": "C:\\\\"})', [("echo", {"s": "C:\\"})], "", []),
    ("digits in a text stay", 'TOOL_CALL: echo({"z": "00501"})', [("echo", {"z": "00501"})], "", []),
    # Refusals and recovery.
    ("not a number", 'TOOL_CALL: echo({"x": NaN})', [], "", [("bad_arguments", "echo")]),
    ("beyond a double", 'TOOL_CALL: echo({"x": 1e999})', [], "", [("bad_arguments", "echo")]),
    ("a value without quotes", "TOOL_CALL: echo({city: Paris})", [], "", [("bad_arguments", "echo")]),
    ("too deep", 'TOOL_CALL: echo({"a": ' + "[" * 120 + "]" * 120 + "})", [], "", [("bad_arguments", "echo")]),
    ("a number", "TOOL_CALL: echo(5)", [], "", [("bad_arguments", "echo")]),
    ("unknown escape", 'TOOL_CALL: echo({"p": "a\\d"})', [], "", [("bad_arguments", "echo")]),
    ("missing brace", 'TOOL_CALL: echo({"a": 1)\nok', [], "ok", [("bad_arguments", "echo")]),
    ("cut in a string", 'TOOL_CALL: write_file({"path": "a", "content": "abc', [], "", [("incomplete", "write_file")]),
    ("cut in the list of keywords", "Hm.\nTOOL_CALL: echo(a=1, b=", [], "Hm.", [("incomplete", "echo")]),
    ("broken before a good one on its line", f"TOOL_CALL: echo([1]) {C2}", [N2], "", [("bad_arguments", "echo")]),
    ("no bracket at all before the next", f'TOOL_CALL: echo({{"s": "abc\n{C1}', [N1], "", [("bad_arguments", "echo")]),
    ("three broken ones", 'TOOL_CALL: echo({"a": "x})\n' * 2 + C1, [N1], "", [("bad_arguments", "echo")] * 2),
    # The text that is left.
    ("blank lines after only", f"a\n{C1}\n\nb", [N1], "a\n\nb", []),
    ("blank lines on both sides of two", f"a\n\n{C1}\n{C2}\n\n\nb", [N1, N2], "a\n\nb", []),
    ("blank lines between two", f"a\n\n{C1}\n\n{C2}\n\nb", [N1, N2], "a\n\nb", []),
    ("indentation of what follows", f"a\n\n{C1}\n\n    b", [N1], "a\n\n    b", []),
    ("line ends of Windows, blank lines", f"a\r\n\r\n{C1}\r\n\r\nb\r\n", [N1], "a\r\n\r\nb", []),
    ("semicolon and full stop", f"{C1};.\nok", [N1], "ok", []),
    ("sentence behind a call", f"{C1}. I wait.", [N1], "I wait.", []),
    ("result written by the model", f"{C1}\nTOOL_RESULT echo: 1", [N1], "TOOL_RESULT echo: 1", []),
]  # fmt: skip
