//! Configuration: built-in defaults, then the YAML file, then the environment (CFG-1).
