"""Breaking a cluster on purpose, and finding out whether it kept its promises."""
