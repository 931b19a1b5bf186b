"""The answer to an attach: what the peer asks for (`link_plan`), and when and how it is told (`attach_handler`)."""
