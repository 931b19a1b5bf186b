"""One AMQP connection without a socket: bytes in, events out. Read `engine` first, then `event_pump`."""
