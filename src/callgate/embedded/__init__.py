"""The embedded model: a small language model that calls tools on this machine's CPU, without a key.

A prompt in the format that the model was trained on and a grammar made from the declared tools go to a llama.cpp server in a
process of its own; text comes back. `prompt`, `grammar`, `spelling` and `asking` are pure, `gguf` and `weights` know the
files, `engine` and `host` are the two ends of the process. What a run makes of it is `models/embedded.py`.
"""
