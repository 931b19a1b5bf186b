"""One AMQP connection without a socket: bytes in, events out. Read `engine` first, then `frame_input` and
`event_pump`."""
