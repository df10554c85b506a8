"""One promise per file. Each remembers for ever, and raises `AssertionError` in the step that broke it."""
