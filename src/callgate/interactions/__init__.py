"""The wire of Gemini's Interactions API: steps instead of contents, with state at the server if it is wanted.

Requests, events and errors of that API are known here and nowhere else; contents come in and go out.
"""
