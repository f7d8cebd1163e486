"""The same task on each system. Each module has an ``app``, and a task ``call`` that takes a text and gives an int."""
