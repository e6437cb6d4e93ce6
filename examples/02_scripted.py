"""A test without a model: the script plays the model, and the recorded requests show what it received."""

from callgate import Gate, ScriptedModel, ToolError
from callgate.testing import call, text


def stock(item: str) -> int:
    """Return how many of an item there are."""
    if item != "tea":
        raise ToolError(f"There is no item {item!r}; there is 'tea'.")
    return 12


model = ScriptedModel([call("stock", item="the"), call("stock", item="tea"), text("There are 12 left.")])
with Gate(model, tools=[stock]) as gate:
    reply = gate.run_sync("How much tea is left?")

assert [record.state for record in reply.calls] == ["failed", "finished"]
for request in model.requests[1:]:
    print(request.contents[-1]["parts"][0]["functionResponse"]["response"])

# Output:
# {'error': "There is no item 'the'; there is 'tea'."}
# {'result': 12}
