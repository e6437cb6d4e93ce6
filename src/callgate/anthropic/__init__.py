"""The wire of Anthropic's Messages API.

Requests are built, answers read and errors understood here; a history in Gemini's form is translated at this edge.
"""
