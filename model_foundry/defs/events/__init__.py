"""Events: the inbox of a day, the sensor that asks for runs, the flow and the sessions told from it."""
