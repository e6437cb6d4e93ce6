"""One adapter for each system: the same few things, done in the way its own documentation shows first.

A module has the functions of the tasks that its system can do at all, and `IMPORT`, what a program begins with:

    turns(url, look_up, turns)      a run in which the model calls one tool in every turn
    stream(url) -> int              the characters of a streamed text
    stream_kept(url) -> int         the same, where a system would not keep the text by itself
    parallel(url, wait, timed)      one answer with twenty calls, as often as `timed` wants; `wait` may be async or not
    large_call(url, store)          one streamed call with a megabyte of arguments
    large_calls(url, store, timed)  whole calls with a megabyte of text, as often as `timed` wants, by one client
    raw_tools(url, tools)           tools with a JSON Schema through a new client to its first answer
    declaring(tools)                tools with a JSON Schema into the bytes of a request
"""
