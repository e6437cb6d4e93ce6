"""Tools with the names and results that the MCP conformance suite asks servers for, as far as callgate has them."""

import asyncio
import base64
import json
import logging
from typing import Literal

from callgate import Media, ToolContext, ToolDefinition, ToolError, tool
from callgate.mcp import elicit, prompt, resource, roots, sample

logger = logging.getLogger("conformance")
logger.setLevel(logging.INFO)

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


@tool
def test_simple_text() -> str:
    """Gives a text."""
    return "This is a simple text response for testing."


@tool
def test_image_content() -> Media:
    """Gives an image."""
    return Media(data=PNG, mime_type="image/png")


@tool
def test_audio_content() -> Media:
    """Gives a sound."""
    return Media(data=b"RIFF$\x00\x00\x00WAVEfmt ", mime_type="audio/wav")


@tool
def test_embedded_resource():
    """Gives a file."""
    return Media(data=b"This is an embedded resource content.", mime_type="text/plain", name="test://embedded-resource")


@tool
def test_multiple_content_types():
    """Gives text, an image and a file."""
    file = Media(data=b'{"test": "data"}', mime_type="application/json", name="test://mixed-content-resource")
    return ["Multiple content types test:", Media(data=PNG, mime_type="image/png"), file]


@tool
def test_error_handling() -> str:
    """Fails."""
    raise ToolError("This tool intentionally returns an error for testing")


@tool
def test_tool_with_progress(context: ToolContext) -> str:
    """Reports how far it is."""
    for percent in (0, 50, 100):
        context.progress(f"{percent} %", percent / 100)
    return "done"


@tool
async def test_tool_with_logging() -> str:
    """Logs three lines while it runs."""
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        logger.info(line)
    return "logged"


@tool
async def test_sampling(prompt: str, context: ToolContext) -> str:
    """Asks the client's model."""
    return f"LLM response: {await sample(context, prompt, max_tokens=100)}"


def _asked(answer: dict | None) -> str:
    return f"User response: {'declined' if answer is None else json.dumps(answer)}"


@tool
async def test_elicitation(message: str, context: ToolContext) -> str:
    """Asks the client's user."""
    fields = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    return _asked(await elicit(context, message, {"type": "object", "properties": fields, "required": [*fields]}))


@tool
async def test_elicitation_sep1034_defaults(context: ToolContext) -> str:
    """Asks with values that are given beforehand."""
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return _asked(await elicit(context, "Please review.", {"type": "object", "properties": fields}))


@tool
async def test_elicitation_sep1330_enums(context: ToolContext) -> str:
    """Asks for choices of every kind."""
    options = ["option1", "option2", "option3"]
    titled = [{"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second", "Third"), 1)]
    fields = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return _asked(await elicit(context, "Please choose.", {"type": "object", "properties": fields}))


def _form(name: str, type: str = "string") -> dict:
    return {"type": "object", "properties": {name: {"type": type}}, "required": [name]}


@tool
async def test_input_required_result_elicitation(context: ToolContext) -> str:
    """Asks the user, whatever the revision of the protocol."""
    answer = await elicit(context, "What is your name?", _form("name"), key="user_name")
    return f"Hello, {answer['name'] if answer else 'stranger'}!"


@tool
async def test_input_required_result_sampling(context: ToolContext) -> str:
    """Asks the client's model."""
    return await sample(context, "What is the capital of France?", max_tokens=100, key="capital_question")


@tool
async def test_input_required_result_list_roots(context: ToolContext) -> str:
    """Asks for the client's folders."""
    return ", ".join(await roots(context, key="client_roots"))


@tool
async def test_input_required_result_request_state(context: ToolContext) -> str:
    """Asks, and goes on where it was."""
    await elicit(context, "Please confirm", _form("ok", "boolean"), key="confirm")
    return "state-ok"


@tool
async def test_input_required_result_tampered_state(context: ToolContext) -> str:
    """Asks for a confirmation."""
    await elicit(context, "Please confirm", _form("ok", "boolean"), key="confirm")
    return "confirmed"


@tool
async def test_input_required_result_multiple_inputs(context: ToolContext) -> str:
    """Asks for three things at once."""
    answers = await asyncio.gather(
        elicit(context, "What is your name?", _form("name"), key="user_name"),
        sample(context, "Generate a greeting", max_tokens=50, key="greeting"),
        roots(context, key="client_roots"),
    )
    return json.dumps(answers)


@tool
async def test_input_required_result_multi_round(context: ToolContext) -> str:
    """Asks twice, one after the other."""
    name = await elicit(context, "Step 1: What is your name?", _form("name"), key="step1")
    color = await elicit(context, "Step 2: What is your favorite color?", _form("color"), key="step2")
    return json.dumps([name, color])


@tool
async def test_input_required_result_capabilities(context: ToolContext) -> str:
    """Asks for what the client can give."""
    asked = (
        elicit(context, "What is your name?", _form("name")),
        sample(context, "Generate a greeting", max_tokens=50),
    )
    return str(await asyncio.gather(*asked, return_exceptions=True))


@tool
async def test_missing_capability(context: ToolContext) -> str:
    """Asks a model, which the client may not have."""
    return await sample(context, "Say hello.")


@tool
async def test_streaming_elicitation(context: ToolContext) -> str:
    """Asks the user."""
    return str(await elicit(context, "Sure?", _form("ok", "boolean")))


@tool
async def test_logging_tool() -> str:
    """Logs a line."""
    logger.info("A line of the log.")
    return "logged"


@prompt()
async def test_input_required_result_prompt(context: ToolContext) -> str:
    """A prompt that the user says something for."""
    answer = await elicit(context, "What context should the prompt use?", _form("context"), key="user_context")
    return f"Use this context: {answer}"


@resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


@resource("test://static-binary", mime_type="image/png")
def static_binary() -> Media:
    """An image."""
    return Media(data=PNG, mime_type="image/png")


@resource("test://watched-resource", mime_type="text/plain")
def watched_resource() -> str:
    """A text that may change."""
    return "Watched."


@resource("test://template/{id}/data", mime_type="application/json")
def template_data(id: str) -> str:
    """A document for every id."""
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


@prompt()
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@prompt()
def test_prompt_with_arguments(arg1: Literal["test1", "test2", "other"] | str, arg2: str) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@prompt()
def test_prompt_with_embedded_resource(resourceUri: str) -> list[str | Media]:
    """A prompt with a resource in it."""
    file = Media(data=b"Embedded resource content for testing.", mime_type="text/plain", name=resourceUri)
    return [file, "Please process the embedded resource above."]


@prompt()
def test_prompt_with_image() -> list[str | Media]:
    """A prompt with an image."""
    return [Media(data=PNG, mime_type="image/png"), "Please analyze the image above."]


class SchemaTool:
    """A tool whose schema is written by hand."""

    definition = ToolDefinition(
        name="json_schema_2020_12_tool",
        description="Tool with JSON Schema 2020-12 features",
        input_schema={
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {
                "address": {
                    "type": "object",
                    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
                }
            },
            "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
            "additionalProperties": False,
        },
    )

    def problems(self, args: object) -> list[str]:
        return []

    async def run(self, args: object, context: ToolContext) -> str:
        return "ok"


schema_tool = SchemaTool()
