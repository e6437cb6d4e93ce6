# File tools: access to one folder only, and undo of every write.
import tempfile
from pathlib import Path

from callgate import FileTools, Gate, Policy, ScriptedModel
from callgate.testing import call, text

model = ScriptedModel(
    [
        [call("read_file", path="notes.txt"), call("read_file", path="../secret.txt")],
        call("write_file", path="notes.txt", content="milk, bread\n"),
        text("I added bread."),
    ]
)

with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as backups:
    notes = Path(folder, "notes.txt")
    notes.write_text("milk\n")
    files = FileTools(folder, state_dir=backups)
    with Gate(model, tools=[files], policy=Policy(mode="auto_edit")) as gate:
        reply = gate.run_sync("Put bread on the list.")
    for record in reply.calls:
        print(record.call.name, record.call.args["path"], record.state)
    print(notes.read_text().strip())
    files.undo()
    print(notes.read_text().strip())

# Output:
# read_file notes.txt finished
# read_file ../secret.txt denied
# write_file notes.txt finished
# milk, bread
# milk
