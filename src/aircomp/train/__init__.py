"""Collecting fragments and training the communication layer."""
