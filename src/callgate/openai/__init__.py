"""The wire of chat completions, which OpenAI made and many servers speak.

Requests are built, answers read and errors understood here; a history in Gemini's form is translated at this edge. What one
server does differently from the others is a row in `quirks.py`.
"""
