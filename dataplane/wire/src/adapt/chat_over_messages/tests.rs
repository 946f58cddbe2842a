//! Traps of the two protocols between which this stands.
