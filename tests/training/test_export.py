"""The adapter as a GGUF file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import gguf
import numpy
import pytest
from training.export import export

NAMES = ["blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.lora_b"]


@pytest.mark.slow
def test_an_exported_adapter_reads_back_with_its_tensors_and_its_alpha(tmp_path: Path) -> None:
    arrays = {name: numpy.linspace(-1, 1, 4 * 64, dtype=numpy.float16).reshape(4, 64) for name in NAMES}
    for part, name in enumerate(NAMES):
        numpy.savez(tmp_path / f"adapter_{part}.npz", **{name: arrays[name]})
    (tmp_path / "adapter.json").write_text(json.dumps({"rank": 4, "alpha": 8, "parts": 2}))
    path = tmp_path / "adapter.gguf"
    digest = export(tmp_path, path)
    reader = gguf.GGUFReader(path)
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert reader.fields["general.type"].contents() == "adapter"
    assert reader.fields["adapter.type"].contents() == "lora"
    assert reader.fields["adapter.lora.alpha"].contents() == 8.0
    assert [tensor.name for tensor in reader.tensors] == NAMES
    for tensor in reader.tensors:
        assert tensor.tensor_type == gguf.GGMLQuantizationType.Q8_0
        back = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        assert numpy.abs(back - arrays[tensor.name].astype(numpy.float32)).max() < 0.01
