"""AMQP connections of a listener: accepted, read from and written to. Read `connection` first."""
