"""Uplink schemes behind one interface."""
