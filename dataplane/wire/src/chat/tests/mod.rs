//! Tests of the chat dialect, by what they are about.
