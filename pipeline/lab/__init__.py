"""The producer laboratory: the advice of producer guides as experiments that one can run and look at."""
