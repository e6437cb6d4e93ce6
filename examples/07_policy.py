# A policy: the strictest matching rule wins, and its reason is sent to the model.
from callgate import Gate, Policy, ScriptedModel
from callgate.permission import Rule
from callgate.testing import call, text


def send(to: str, subject: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


policy = Policy(
    default="deny",
    rules=[
        "allow send",
        Rule(verdict="deny", tool="send", args={"to": "*@example.org"}, reason="Nothing goes to example.org."),
    ],
)
both = [call("send", to="ada@example.com", subject="Hi"), call("send", to="bob@EXAMPLE.org", subject="Hi")]
with Gate(ScriptedModel([both, text("Done.")]), tools=[send], policy=policy) as gate:
    reply = gate.run_sync("Say hi to both.")

for record in reply.calls:
    print(record.state, record.result.value or record.result.error)

# Output:
# finished sent to ada@example.com
# denied This call was not allowed. Nothing goes to example.org.
