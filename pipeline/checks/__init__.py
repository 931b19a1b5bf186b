"""What can be wrong with a log and its clients, as functions from DataFrames to a DataFrame of anomalies."""
