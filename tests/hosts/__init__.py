"""The host as a real application: its threads, forks, signals, descriptors, deaths; and the library inside of it."""
