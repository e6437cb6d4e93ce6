"""Tools that can be called: the executor, one running call, threads, toolsets."""
