"""AMQP's type system as Python values, and as bytes. Read `codec` first; nothing here knows of frames or links."""
