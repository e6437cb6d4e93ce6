"""How the embedded model's adapter is made: data, training, export to GGUF and evaluation. See README.md beside this file."""
