"""A function as a tool: its signature and docstring become the declaration."""

from callgate import Gate, ScriptedModel
from callgate.testing import call, text


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


model = ScriptedModel([call("add", a="1", b=2), text("1 + 2 is 3.")])
with Gate(model, tools=[add]) as gate:
    reply = gate.run_sync("What is 1 + 2?")

print(reply.text)
for record in reply.calls:
    print(record.call.name, dict(record.call.args), "->", record.result.value)

# Output:
# 1 + 2 is 3.
# add {'a': 1, 'b': 2} -> 3
