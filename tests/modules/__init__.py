"""Our own attack modules, their catalogue, and the unconfined runs which show that each attack is real."""
