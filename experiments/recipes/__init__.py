"""One module for each experiment: a typed `Config` and `build(config, data)`."""
