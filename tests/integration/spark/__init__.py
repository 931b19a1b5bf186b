"""Logs read by a real Spark from a real cluster."""
