"""THE LOOP: a pure state machine, facts in, commands out."""
