"""SmolLM2 with low-rank adapters, in PyTorch: loading, training steps, greedy generation, saving the adapters.

The base weights of `inputs.py` come in; the adapters go out as arrays under the names that llama.cpp uses. The base is
exactly the quantised model that users run, and its attention weights stay in llama.cpp's order (rotary pairs
interleaved), so that the adapters fit without any permutation.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.nn.functional as functional
from torch import nn

LAYERS, WIDTH, HEADS, KEY_HEADS, HEAD_WIDTH = 30, 576, 9, 3, 64
ROPE_BASE, NORM_EPSILON, POSITIONS = 100_000.0, 1e-5, 8192
LINEARS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
F32, F16, Q4_1, Q8_0 = 0, 1, 3, 8
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
COMPUTE = torch.bfloat16 if DEVICE == "cuda" else torch.float32


def dequantised(kind: int, shape: list[int], raw: numpy.ndarray) -> numpy.ndarray:
    """A tensor of the GGUF file as floats; `kind` is ggml's number of its type."""
    rows = list(reversed(shape))
    if kind in (F32, F16):
        return numpy.ascontiguousarray(raw).reshape(rows).astype(numpy.float32)
    blocks = numpy.ascontiguousarray(raw).reshape(-1).view(numpy.uint8)
    if kind == Q4_1:  # scale, minimum, then 32 values of 4 bits, low halves first
        blocks = blocks.reshape(-1, 20)
        scale = blocks[:, :2].copy().view(numpy.float16).astype(numpy.float32)
        minimum = blocks[:, 2:4].copy().view(numpy.float16).astype(numpy.float32)
        values = numpy.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], 1).astype(numpy.float32) * scale + minimum
    elif kind == Q8_0:  # scale, then 32 values of 8 bits
        blocks = blocks.reshape(-1, 34)
        scale = blocks[:, :2].copy().view(numpy.float16).astype(numpy.float32)
        values = blocks[:, 2:].copy().view(numpy.int8).astype(numpy.float32) * scale
    else:
        raise ValueError(f"Tensors of ggml type {kind} are not read here; the base model has F32, F16, Q4_1 and Q8_0.")
    return values.reshape(rows)


def load_base(inputs: Path) -> dict[str, torch.Tensor]:
    """All tensors of the base model."""
    shapes = json.loads((inputs / "weights.json").read_text(encoding="utf-8"))
    weights: dict[str, torch.Tensor] = {}
    for path in sorted(inputs.glob("weights_*.npz")):
        with numpy.load(path) as arrays:
            weights |= {name: torch.from_numpy(dequantised(*shapes[name], arrays[name])) for name in arrays.files}
    if lacking := shapes.keys() - weights.keys():
        raise SystemExit(f"{len(lacking)} tensors are not in {inputs}/weights_*.npz. Run training.inputs again.")
    return weights


class Adapted(nn.Module):
    """A frozen linear layer with a low-rank adapter beside it."""

    def __init__(self, weight: torch.Tensor, rank: int, scale: float) -> None:
        super().__init__()
        outputs, inputs = weight.shape
        self.scale = scale
        self.register_buffer("weight", weight.to(COMPUTE))
        self.down = nn.Parameter(torch.randn(rank, inputs) / math.sqrt(inputs))
        self.up = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = functional.linear(x, self.down.to(COMPUTE))
        return functional.linear(x, self.weight) + functional.linear(low, self.up.to(COMPUTE) * self.scale)


def rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Rotary positions on interleaved pairs; x is [batch, heads, length, width]."""
    x = x.float()
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], -1).flatten(-2).to(COMPUTE)


class Block(nn.Module):
    """One layer of the transformer."""

    def __init__(self, weights: dict[str, torch.Tensor], number: int, rank: int, scale: float) -> None:
        super().__init__()
        self.register_buffer("attention_norm", weights[f"blk.{number}.attn_norm.weight"].to(COMPUTE))
        self.register_buffer("feed_norm", weights[f"blk.{number}.ffn_norm.weight"].to(COMPUTE))
        for name in LINEARS:
            setattr(self, name, Adapted(weights[f"blk.{number}.{name}.weight"], rank, scale))

    def heads(
        self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values."""
        batch, length, _ = x.shape
        h = functional.rms_norm(x, (WIDTH,), self.attention_norm, NORM_EPSILON)
        query = self.attn_q(h).view(batch, length, HEADS, HEAD_WIDTH).transpose(1, 2)
        key = self.attn_k(h).view(batch, length, KEY_HEADS, HEAD_WIDTH).transpose(1, 2)
        value = self.attn_v(h).view(batch, length, KEY_HEADS, HEAD_WIDTH).transpose(1, 2)
        return rotate(query, cosine, sine), rotate(key, cosine, sine), value

    def rest(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """What comes after attention."""
        batch, length, _ = x.shape
        x = x + self.attn_output(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        h = functional.rms_norm(x, (WIDTH,), self.feed_norm, NORM_EPSILON)
        return x + self.ffn_down(functional.silu(self.ffn_gate(h)) * self.ffn_up(h))

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        query, key, value = self.heads(x, cosine, sine)
        return self.rest(x, functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True))


class Model(nn.Module):
    """The whole language model; only the adapters are trained."""

    def __init__(self, weights: dict[str, torch.Tensor], *, rank: int, alpha: float) -> None:
        super().__init__()
        self.register_buffer("embedding", weights["token_embd.weight"].to(COMPUTE))
        self.register_buffer("final_norm", weights["output_norm.weight"].to(COMPUTE))
        self.blocks = nn.ModuleList(Block(weights, number, rank, alpha / rank) for number in range(LAYERS))
        frequency = ROPE_BASE ** (-torch.arange(0, HEAD_WIDTH, 2).double() / HEAD_WIDTH)
        angle = torch.arange(POSITIONS).double()[:, None] * frequency[None]
        self.register_buffer("cosine", angle.cos().float())
        self.register_buffer("sine", angle.sin().float())

    def hidden(self, ids: torch.Tensor) -> torch.Tensor:
        """The last layer's output for each token."""
        x = self.embedding[ids]
        cosine, sine = self.cosine[: ids.shape[1]], self.sine[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, cosine, sine)
        return functional.rms_norm(x, (WIDTH,), self.final_norm, NORM_EPSILON)

    def loss(self, ids: torch.Tensor, learned: torch.Tensor) -> torch.Tensor:
        """Cross entropy of the learned tokens; the output layer is computed for those alone."""
        wanted = learned[:, 1:]
        outputs = self.hidden(ids)[:, :-1][wanted]
        return functional.cross_entropy((outputs @ self.embedding.T).float(), ids[:, 1:][wanted])

    def _next(self, x: torch.Tensor) -> torch.Tensor:
        h = functional.rms_norm(x, (WIDTH,), self.final_norm, NORM_EPSILON)
        return (h @ self.embedding.T).float().argmax(-1)

    @torch.no_grad()
    def generate(self, prompts: list[list[int]], *, tokens_max: int, end: int) -> list[list[int]]:
        """Greedy replies to several prompts at once."""
        rows = torch.arange(len(prompts), device=DEVICE)
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=DEVICE)
        longest = int(lengths.max())
        ids = torch.zeros(len(prompts), longest, dtype=torch.long, device=DEVICE)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = torch.tensor(prompt, device=DEVICE)
        x, caches = self.embedding[ids], []
        for block in self.blocks:
            query, key, value = block.heads(x, self.cosine[:longest], self.sine[:longest])
            x = block.rest(x, functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True))
            caches.append([functional.pad(kept, (0, 0, 0, tokens_max)) for kept in (key, value)])
        token = self._next(x[rows, lengths - 1])
        out, done = [token], token == end
        places = torch.arange(longest + tokens_max, device=DEVICE)
        for step in range(tokens_max - 1):
            if bool(done.all()):
                break
            position = lengths + step
            cosine, sine = self.cosine[position][:, None, None], self.sine[position][:, None, None]
            mask = (places[None] <= position[:, None])[:, None, None]
            x = self.embedding[token][:, None]
            for block, (keys, values) in zip(self.blocks, caches, strict=True):
                query, key, value = block.heads(x, cosine, sine)
                keys[rows, :, position], values[rows, :, position] = key[:, :, 0], value[:, :, 0]
                x = block.rest(
                    x, functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=True)
                )
            token = torch.where(done, torch.full_like(token, end), self._next(x[:, 0]))
            out.append(token)
            done |= token == end
        return [row[: row.index(end)] if end in row else row for row in torch.stack(out, 1).tolist()]

    def adapters(self) -> dict[str, Any]:
        """The trained arrays under llama.cpp's names."""
        arrays = {}
        for number, block in enumerate(self.blocks):
            for name in LINEARS:
                layer = getattr(block, name)
                for letter, parameter in (("a", layer.down), ("b", layer.up)):
                    arrays[f"blk.{number}.{name}.weight.lora_{letter}"] = (
                        parameter.detach().float().cpu().numpy().astype(numpy.float16)
                    )
        return arrays

    def set_adapters(self, arrays: dict[str, Any]) -> None:
        """Go on from trained arrays."""
        for key, array in arrays.items():
            _, number, name, _, which = key.split(".")
            layer = getattr(self.blocks[int(number)], name)
            (layer.down if which == "lora_a" else layer.up).data.copy_(torch.from_numpy(array).float())
