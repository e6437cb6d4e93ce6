# A session: the conversation continues in another process, from a journal written before each step.
import tempfile
from pathlib import Path

from callgate import Gate, ScriptedModel
from callgate.testing import call, text


def remember(fact: str) -> str:
    """Store a fact."""
    return "kept"


with tempfile.TemporaryDirectory() as folder:
    store = str(Path(folder, "sessions.db"))
    with Gate(ScriptedModel([call("remember", fact="tea"), text("Noted.")]), tools=[remember], store=store) as gate:
        session = gate.run_sync("I like tea.").session

    # Another gate, as it would be in another process.
    model = ScriptedModel([text("You like tea.")])
    with Gate(model, tools=[remember], store=store) as gate:
        print(gate.run_sync("What do I like?", session=session).text)
    for content in model.requests[0].contents:
        print(content["role"], *[key for part in content["parts"] for key in part])

# Output:
# You like tea.
# user text
# model functionCall
# user functionResponse
# model text
# user text
