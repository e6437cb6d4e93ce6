"""Adapters as arrays -> one GGUF file that llama.cpp loads beside the base model.

    python -m training.export --out OUT --to adapter.gguf

The arrays of `train.py` come in, a LoRA adapter in Q8_0 goes out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

NAME = "callgate tools, LoRA for SmolLM2-135M-Instruct"


def export(folder: Path, path: Path) -> str:
    """Write the GGUF file; its sha256 comes back."""
    import gguf
    import numpy
    from gguf import quants

    settings = json.loads((folder / "adapter.json").read_text(encoding="utf-8"))
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(settings["alpha"]))
    writer.add_name(NAME)
    writer.add_license("apache-2.0")
    for part in range(settings["parts"]):
        with numpy.load(folder / f"adapter_{part}.npz") as arrays:
            for name in arrays.files:
                packed = quants.quantize(arrays[name].astype(numpy.float32), gguf.GGMLQuantizationType.Q8_0)
                writer.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the adapter as GGUF.")
    parser.add_argument("--out", type=Path, default=Path("training/out"), help="folder that training wrote")
    parser.add_argument("--to", type=Path, default=Path("training/out/callgate-tools-smollm2-135m-lora-r64-q8_0.gguf"))
    options = parser.parse_args()
    digest = export(options.out, options.to)
    print(f"{digest}  {options.to}  ({options.to.stat().st_size:,} bytes)")


if __name__ == "__main__":
    main()
