"""HTTP for all models: requests with time-outs and retries, a shared rate limiter and circuit breaker per endpoint, answers
that are cut into JSON, and the names of what goes wrong there.

Each wire (`gemini/`, `openai/`) says what its server's words mean; nothing here knows any of them, but for the place where
Gemini keeps a call's arguments (`oversized_args.py`).
"""
