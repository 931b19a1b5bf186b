"""What a run was, for people and for programs: `report.json`, and one page that needs nothing beside itself.

Problem: a red word is believed by nobody and a green one by everybody. So the page shows what was done to the cluster,
what its clients saw meanwhile, and for each violation the calls that prove it, with the command that repeats the run.
Rule never broken: the page says nothing that is not in the history; it loads nothing, from nowhere.
Rejected: a server with a database of runs. A run is a directory, and a directory can be sent to somebody.
"""
