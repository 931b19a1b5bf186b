"""A second load driver, for Kafka's protocol, with the same plans and reports as `benchmarks.driver`.

It sends the same bodies in the same window, and the same code counts, times and reports (`benchmarks.driver.bounded`).
But it uses confluent-kafka (librdkafka), the usual client of Python programs, because a client of our own would tell
nothing about Kafka. librdkafka batches events by itself, in its own threads; their CPU counts as the client's.

`pom.xml` names the brokers' artifacts (scripts/kafka.sh fetches them), `requirements.lock` the client. Holdfast needs
neither.
"""
