"""How the adapter of the embedded model is made: data, training, export to GGUF and evaluation. See README.md."""
