"""Report of a run, for programs and for people: `report.json`, and one HTML page without external files.

Readers doubt a failure and trust a success too easily. So the page shows the faults, what clients saw meanwhile, and
for each violation the calls that prove it, with the command that repeats the run. It shows nothing that is not in the
history, and loads nothing.

Rejected: a server with a database of runs. A run is a directory, which is easy to send.
"""
