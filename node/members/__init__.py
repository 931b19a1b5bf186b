"""Nodes of the cluster while this one runs: peers that come and go, who votes on metadata, and how nodes leave."""
