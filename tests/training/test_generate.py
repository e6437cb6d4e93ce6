"""The generator: what it makes can be trained on, and nothing that is tested on is in it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from training.corpus import Corpus, normal
from training.example import Example
from training.format import END, parse_calls
from training.studio import Studio

from training import generate

CHECKS = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
}


def made(corpus: Corpus, count: int, seed: int) -> list[tuple[str, Example]]:
    studio = Studio.open(corpus, seed)
    return [generate.one(studio) for _ in range(count)]


def check_call(name: str, args: dict[str, Any], tools: list[dict[str, Any]]) -> None:
    (tool,) = [tool for tool in tools if tool["name"] == name]
    properties, required = tool["parameters"]["properties"], tool["parameters"]["required"]
    assert set(required) <= args.keys() <= properties.keys()
    assert list(args) == [key for key in properties if key in args], "arguments stand in the order of the schema"
    for key, value in args.items():
        if "enum" in properties[key]:
            assert value in properties[key]["enum"]
        assert CHECKS[properties[key]["type"]](value), (name, key, value)


@pytest.mark.parametrize("maker", [maker for maker, _ in generate.KINDS], ids=lambda maker: maker.__name__)
def test_every_kind_makes_examples_with_calls_that_fit_their_tools(maker: Any, corpus: Corpus, scale: int) -> None:
    studio, count = Studio.open(corpus, 7), 0
    for _ in range(4000 * scale):
        example = maker(studio)
        if example is None:
            continue
        count += 1
        names = [tool["name"] for tool in example.tools]
        assert len(set(names)) == len(names)
        assert len(names) <= 30
        for given, reply in example.turns:
            assert given.strip()
            assert reply.strip()
            calls, fault = parse_calls(reply)
            assert fault is None, reply
            for name, args in calls:
                check_call(name, args, example.tools)
        if count == 25 * scale:
            return
    assert count >= 10, f"{maker.__name__} gave {count} examples"


def test_the_same_seed_gives_the_same_examples(corpus: Corpus) -> None:
    assert made(corpus, 40, 3) == made(corpus, 40, 3)
    assert made(corpus, 40, 3) != made(corpus, 40, 4)


def test_only_replies_are_learned_and_each_ends(corpus: Corpus) -> None:
    for _, example in made(corpus, 40, 5):
        pieces = example.pieces()
        assert [learned for _, learned in pieces] == [False, True] * len(example.turns)
        assert all(text.endswith(END) for text, learned in pieces if learned)
        assert pieces[0][0].startswith("<|im_start|>system\n")


def test_no_example_has_a_tool_of_the_evaluation_or_a_request_of_a_test(corpus: Corpus) -> None:
    examples = [example for _, example in made(corpus, 400, 6)]
    assert not {tool["name"] for example in examples for tool in example.tools} & corpus.excluded
    assert not {normal(given) for example in examples for given, _ in example.turns} & corpus.banned


def test_what_is_excluded_or_banned_is_refused(corpus: Corpus) -> None:
    tool = {"name": sorted(corpus.excluded)[0], "description": "", "parameters": {"properties": {}, "required": []}}
    assert not generate.allowed(Example([tool], [("hi", "Hello!")]), corpus)
    assert not generate.allowed(Example([], [("Wake me, at SEVEN!", "Okay.")]), corpus)
    assert generate.allowed(Example([], [("Wake me at eight", "Okay.")]), corpus)


def test_a_result_that_is_an_error_is_answered_as_one(corpus: Corpus) -> None:
    results = Studio.open(corpus, 8).results
    for _ in range(50):
        result, answer = results.error({"path": "notes.txt"})
        message = result.get("message") or result["error"]
        message = message["message"] if isinstance(message, dict) else message
        assert message in answer
        assert not answer.startswith("Done")
        json.dumps(result)
