"""How long a scenario waits: scenarios judge what happens, not how fast; the machine may be busy with other things."""

WAIT_S = 90
