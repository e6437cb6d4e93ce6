# A LangChain tool in a gate, and a callgate tool in LangChain (pip install langchain-core): both are validated.
from langchain_core.tools import tool as langchain_tool

from callgate import Gate, Policy, ScriptedModel
from callgate.adapters import to_langchain
from callgate.testing import call, text


@langchain_tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


with Gate(ScriptedModel([call("multiply", a=6, b="7"), text("42.")]), tools=[multiply]) as gate:
    print(gate.run_sync("6 * 7?").calls[0].result.value)


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


(ours,) = to_langchain([add], policy=Policy(rules=[{"verdict": "deny", "tool": "add", "args": {"a": "13"}}]))
for a in (1, 13, "one"):
    message = ours.invoke({"type": "tool_call", "id": "1", "name": "add", "args": {"a": a, "b": 2}})
    print(message.status, message.content)

# Output:
# 42
# success 3
# error This call was not allowed. The policy has a rule against it: deny 'add' where a matches '13'.
# error The arguments of 'add' are not valid: a: 'one' is a string, but an integer is needed. Correct them and call again.
