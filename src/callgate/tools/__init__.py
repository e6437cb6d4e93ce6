"""Tools: the executor, one running call, threads, toolsets."""
