"""The conversation: its rules, its repair, and its contents encoded once."""
