//! Finds model servers that run on this machine.
