"""Gemini contents as JSON: views, builders, prompts, and function calls out of whole and streamed answers."""
