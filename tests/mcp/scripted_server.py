"""An MCP server over stdio that does everything wrong on demand: plain JSON lines, nothing imported that takes time.

Run it with a JSON object of options, or @ and a file of it: `tools` (names to offer), `more` (whole tools),
`start_delay_s`, `refuse` (exit at once), `greeting` (lines that are no messages), `can` (capabilities), `answers` (results
of other methods), `instructions`, `subscribes` (takes subscriptions to resources), `silent` (says nothing to what it does
not know).
"""

import json
import os
import subprocess
import sys
import time

GIVEN = sys.argv[1] if len(sys.argv) > 1 else "{}"
if GIVEN.startswith("@"):
    with open(GIVEN[1:]) as given_file:
        GIVEN = given_file.read()
OPTIONS = json.loads(GIVEN)
ANY = {"type": "object"}
TOOLS = {name: {"name": name, "description": f"Does {name}.", "inputSchema": ANY} for name in OPTIONS.get("tools", ["echo"])}
CANCELLED = []
NOTIFIED = []
SUBSCRIBED = set()
FORM = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(words, **fields):
    return {"content": [{"type": "text", "text": words}], **fields}


def echo(args, request):
    return text(json.dumps(args))


def die(args, request):
    sys.stderr.write("first line\nthe disk is on fire\n")
    sys.stderr.flush()
    os._exit(3)


def hang(args, request):
    return None


def cancelled(args, request):
    return text(json.dumps(CANCELLED))


def garbage(args, request):
    sys.stdout.write("Listening...\n{not json}\n[1, 2]\n\n" + "\x00\x01\n")
    sys.stdout.buffer.flush()
    return text("after the garbage")


def halved(args, request):
    """A text that is cut in the middle of an emoji, as a program does that counts in UTF-16."""
    return text("a fox \ud83d")


def flood(args, request):
    for number in range(2000):
        sys.stderr.write(f"{number} {'x' * 1000}\n")
    return text("after the flood")


def line(args, request):
    for _ in range(args["mib"]):
        sys.stdout.write("x" * 1024 * 1024)
    sys.stdout.flush()
    return None


def message(args, request):
    """One message, as it should be, and far too large."""
    head = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": text("HERE")})
    before, _, after = head.partition("HERE")
    sys.stdout.write(before)
    for _ in range(args["mib"]):
        sys.stdout.write("x" * 1024 * 1024)
    sys.stdout.write(after + "\n")
    sys.stdout.flush()


def huge(args, request):
    return text("y" * args["chars"])


def fail(args, request):
    return text("the lamp is broken", isError=True, structuredContent={"code": 7})


def give(args, request):
    """A result that is not as MCP has it."""
    return args["result"]


def spoil(args, request):
    """Notifications that are not as MCP has them."""
    for _ in range(args["times"]):
        send({"method": "notifications/resources/updated", "params": {}})
    return text("spoilt")


def structured(args, request):
    return {"content": [{"type": "text", "text": '{ "a": null,\n "b": 2 }'}], "structuredContent": {"a": None, "b": 2}}


def image(args, request):
    return {"content": [{"type": "text", "text": "a dot"}, {"type": "image", "mimeType": "image/png", "data": "aWNvbg=="}]}


def env(args, request):
    return text(json.dumps(dict(os.environ)))


def where(args, request):
    return text(json.dumps([os.getpid(), os.getpgrp(), os.getcwd()]))


def spawn(args, request):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    return text(json.dumps([os.getpid(), child.pid]))


def progress(args, request):
    token = request["params"]["_meta"]["progressToken"]
    for done in (1, 2):
        send({"method": "notifications/progress",
              "params": {"progressToken": token, "progress": done, "total": 2, "message": f"step {done}"}})  # fmt: skip
    return text("done")


def ask(args, request):
    """Asks the client something in the middle of a call, and gives what it answered."""
    send({"id": "q1", "method": args["method"], "params": args.get("params", {})})
    for received in sys.stdin:
        answered = json.loads(received)
        if answered.get("id") == "q1":
            return text(json.dumps(answered.get("result", answered.get("error"))))


def gated(args, request):
    """Can be called only after a page was visited."""
    if "visited" in OPTIONS:
        return text("through the gate")
    OPTIONS["visited"] = True
    page = {"mode": "url", "elicitationId": "e1", "url": "https://auth.example/x", "message": "Allow it there."}
    send({"id": request["id"], "error": {"code": -32042, "message": "visit", "data": {"elicitations": [page]}}})


def ask_later(args, request):
    """Asks when the call is over and a file is gone, and writes the answer to another file."""
    send({"id": request["id"], "result": text("over")})
    while os.path.exists(args["wait"]):
        time.sleep(0.01)
    params = {"message": "Your password?", "requestedSchema": FORM}
    told = ask({"method": "elicitation/create", "params": params}, request)
    with open(args["file"] + ".new", "w") as file:
        file.write(told["content"][0]["text"])
    os.rename(args["file"] + ".new", args["file"])


def change(args, request):
    """Adds, removes and rewrites tools."""
    for name, tool in args["tools"].items():
        if tool is None:
            del TOOLS[name]
        else:
            TOOLS[name] = {"name": name, "inputSchema": ANY, **tool}
    send({"method": "notifications/tools/list_changed"})
    return text("changed")


def write(args, request):
    """Writes log messages."""
    for data in args["messages"]:
        send({"method": "notifications/message", "params": {"level": args.get("level", "info"), "data": data}})
    return text("written")


def touch(args, request):
    """Says that a resource has changed, to those who want to know."""
    if args["uri"] in SUBSCRIBED:
        send({"method": "notifications/resources/updated", "params": {"uri": args["uri"]}})
    return text(json.dumps(sorted(SUBSCRIBED)))


def told(args, request):
    """The notifications that came."""
    return text(json.dumps(NOTIFIED))


def answer(request):
    method = request["method"]
    if method == OPTIONS.get("dies_at"):
        os._exit(6)
    if method == "initialize":
        return {
            "protocolVersion": OPTIONS.get("protocol", "2025-06-18"),
            "capabilities": {"tools": {"listChanged": True}, **OPTIONS.get("can", {})},
            "serverInfo": {"name": "scripted", "version": "1"},
            **({"instructions": OPTIONS["instructions"]} if "instructions" in OPTIONS else {}),
        }
    if method == "tools/list":
        return {"tools": [*TOOLS.values(), *OPTIONS.get("more", [])]}
    if method == "tools/call":
        name = request["params"]["name"]
        tool = next(tool for tool in [*TOOLS.values(), *OPTIONS.get("more", [])] if tool["name"] == name)
        does = tool.get("_meta", {}).get("does", name.removeprefix(OPTIONS.get("prefix", "")))
        return globals()[does](request["params"].get("arguments", {}), request)
    if method in ("resources/subscribe", "resources/unsubscribe") and OPTIONS.get("subscribes"):
        (SUBSCRIBED.add if method == "resources/subscribe" else SUBSCRIBED.discard)(request["params"]["uri"])
        return {}
    if method in OPTIONS.get("answers", {}):
        return OPTIONS["answers"][method]
    return NotImplemented


def main():
    if OPTIONS.get("refuse"):
        sys.stderr.write("no licence found\n")
        sys.exit(4)
    time.sleep(OPTIONS.get("start_delay_s", 0))
    for line in OPTIONS.get("greeting", []):
        print(line, flush=True)
    for received in sys.stdin:
        request = json.loads(received)
        if request.get("method") == "notifications/cancelled":
            CANCELLED.append(request["params"]["requestId"])
        if "id" not in request and "method" in request:
            NOTIFIED.append(request["method"])
        if "id" not in request or "method" not in request:
            continue
        result = answer(request)
        if result is NotImplemented and OPTIONS.get("silent"):
            continue
        if result is NotImplemented:
            send({"id": request["id"], "error": {"code": -32601, "message": f"no method {request['method']}"}})
        elif result is not None:
            send({"id": request["id"], "result": result})


main()
