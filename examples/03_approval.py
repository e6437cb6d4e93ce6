"""Approval: a rule asks before a call runs, and a program or a person answers."""

import asyncio

from callgate import Gate, Policy, ScriptedModel
from callgate.testing import call, text


def delete(name: str) -> str:
    """Delete a draft."""
    return f"{name} is gone"


async def approve(call, definition, reason):
    """Approve the deletion of old drafts only."""
    return "yes" if call.args["name"].startswith("old-") else "no"


model = ScriptedModel([[call("delete", name="old-plan"), call("delete", name="plan")], text("I deleted one of them.")])
gate = Gate(model, tools=[delete], policy=Policy(default="ask"), approve=approve)
reply = asyncio.run(gate.run("Delete both drafts."))

for record in reply.calls:
    print(record.call.args["name"], record.state, record.result.value or record.result.error)

# Output:
# old-plan finished old-plan is gone
# plan denied The user did not allow this call.
