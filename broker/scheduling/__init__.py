"""When work is done: loop iterations, timers, ticks."""
