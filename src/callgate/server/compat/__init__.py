"""The service for clients that exist already: those of Gemini, of chat completions, of the AI SDK and of MCP.

Each module reads the requests of one kind of client and writes the answers that it expects; `prompts.py` does what is in
between. A request without tools of its own gets the server's, which are run here; one that brings its own is passed on.
"""
