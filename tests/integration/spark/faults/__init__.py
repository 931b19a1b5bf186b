"""What goes wrong around Spark and in it: each event is there once."""
