"""What the wires of all models share: HTTP requests that are timed and tried again, and the names of what goes wrong there.

Each wire (`gemini/`, `openai/`) says what its server's words mean; nothing here knows any of them.
"""
