"""Checks of a log and its clients, as functions from DataFrames to a DataFrame of anomalies."""
