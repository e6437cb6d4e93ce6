# Conversion: tools of another system become Gemini declarations, and every loss is reported.
from callgate import convert, definition_from

amazon_q = {
    "toolSpecification": {
        "name": "fs_read",
        "description": "Read a file.",
        "inputSchema": {"json": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}},
    }
}
print(definition_from(amazon_q).name)

openai = convert(amazon_q, target="openai")
print(openai.value["function"]["parameters"]["required"], openai.losses)

annotated = {
    "name": "peek",
    "description": "Looks.",
    "inputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
}
for loss in convert(annotated, source="mcp", target="openai").losses:
    print(loss.pointer, "-", loss.reason)

# Output:
# fs_read
# ['path'] []
# /annotations/readOnlyHint - OpenAI: it does not say that a tool changes nothing
