"""Tools with the names and results that the MCP conformance suite asks servers for, as far as callgate has them."""

import base64

from callgate import Media, ToolContext, ToolError, tool

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
