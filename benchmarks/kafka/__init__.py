"""A second load driver, for Kafka's protocol, of the same shape as `benchmarks.driver`: it takes the same plan, sends
the same bodies in the same window, and counts, times and reports by the very same code (`benchmarks.driver.bounded`).

What differs: it stands on confluent-kafka (librdkafka), the client that Python programs use with Kafka, because a Kafka
client written for a benchmark would say nothing about Kafka. librdkafka gathers events into batches by itself, in
threads of its own: their CPU counts as the client's.

Beside this driver: `pom.xml` names the brokers' artifacts (scripts/kafka.sh fetches them), `requirements.lock` the
client. Neither is part of Holdfast or of what it needs.
"""
