"""Peers that mean harm: the attacks that a node must bear, and a fuzzer. Each runs in a process of its own."""
