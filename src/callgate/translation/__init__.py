"""Histories and tools in Gemini's form for the models of other APIs.

A conversation and definitions come in, messages and tools of another API go out; how one of them looks is known to the wire
of that API. Nothing is sent here.
"""
