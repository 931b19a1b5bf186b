"""Groups without news: they fall silent, and the heartbeats of their leaders' nodes speak for them."""
