"""The engine's side of the pipe: a process that holds llama.cpp's server and nothing else.

Started by `engine.py` as `python -m callgate.embedded.server_process`. One line of JSON with the settings comes in on stdin,
one line that says where it listens, or why it cannot, goes out on stdout. It ends when stdin ends, so it never outlives its
owner. llama.cpp takes the signals of its process and may abort on a file that it does not like: here it can do no harm.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from typing import Any

__all__ = ["main"]


def main() -> None:
    """Load the model, report it, and wait for the end of stdin."""
    # A Ctrl-C at the terminal is for the program that talks to a person.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    out = os.dup(1)
    os.dup2(2, 1)  # Whatever the libraries print goes to the log, and not among our lines.
    try:
        server = _server(settings)
        address: Any = server.listening_address
        said = {"address": address.decode() if isinstance(address, bytes) else str(address)}
    except ImportError as error:
        library = "apt-get install libgomp1" if "libgomp" in str(error) else "pip install 'callgate[local]'"
        said = {"error": f"the package xllamacpp cannot be used ({error}); install what is missing with: {library}"}
    except (RuntimeError, ValueError, MemoryError, OSError) as error:
        said = {"error": f"llama.cpp could not load the model ({error})"}
    os.write(out, json.dumps(said).encode() + b"\n")
    if "error" not in said:
        sys.stdin.buffer.read()
    # The server's own end waits for its threads; nothing here is worth waiting for.
    os._exit(0)


def _server(settings: dict[str, Any]) -> Any:
    # The package says nothing of its types.
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params: Any = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    if settings.get("adapter"):
        adapter: Any = xllamacpp.CommonAdapterLoraInfo()
        adapter.path, adapter.scale = settings["adapter"], 1.0
        params.lora_adapters = [adapter]
    params.n_ctx = settings["context"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    # A batch is what runs between two looks at whether somebody still listens.
    params.n_batch = params.n_ubatch = settings["batch"]
    params.n_parallel = 1
    params.n_threads_http = 4
    params.n_gpu_layers = 0
    # llama.cpp would keep the states of old prompts, up to 8 GiB of them.
    params.cache_ram_mib = 0
    params.n_ctx_checkpoints = 0
    params.warmup = False
    params.ui = False
    params.endpoint_slots = False
    if settings.get("states"):
        params.slot_save_path = settings["states"]
    params.use_jinja = True
    params.verbosity = settings["verbosity"]
    params.hostnames = [settings["host"]]
    params.port = 0
    params.api_keys = [settings["secret"]]
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
