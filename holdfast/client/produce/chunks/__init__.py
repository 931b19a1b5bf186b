"""Events on their way are chunks: what one call gives (`pieces`), or single events that come in one turn of the loop
(`single_events`); `delivery` is what their owners hold meanwhile.
"""
