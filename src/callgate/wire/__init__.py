"""What the wires of all models share: HTTP requests that are timed and tried again, callers that slow down together, answers
that are cut into JSON, and the names of what goes wrong there.

Each wire (`gemini/`, `openai/`) says what its server's words mean; nothing here knows any of them, but for the place where
Gemini keeps a call's arguments (`oversized_args.py`).
"""
