"""The fleet: who can do what, who is alive, who gets the next job."""
