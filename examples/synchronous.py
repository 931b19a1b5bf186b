"""Publish and read without an event loop: `python examples/synchronous.py --server 127.0.0.1:5672`."""

import argparse
import uuid

from holdfast.client import ConsumerOptions, HoldfastError
from holdfast.client.sync import AdminClient, ConsumerClient, ProducerClient, Start


def main(servers: list[str]) -> None:
    log = f"example-{uuid.uuid4().hex[:8]}"
    with AdminClient(servers) as admin:
        admin.create_log(log, partitions=2)
        try:
            with ProducerClient(servers, log) as producer:
                for number in range(100):
                    producer.send(f"order {number}", key=f"customer-{number % 7}")
                producer.flush()
                result = producer.send_batch([f"invoice {number}" for number in range(10)], key="customer-3")
                print(f"{result.count} invoices stand in partition {result.partition}")
            to_the_end = ConsumerOptions(until_end=True)
            with ConsumerClient(servers, log, start=Start.earliest(), options=to_the_end) as consumer:
                count = sum(1 for _ in consumer)
                print(f"read {count} events")
        finally:
            admin.delete_log(log)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", action="append", help="host:port of a node; may be repeated")
    try:
        main(parser.parse_args().server or ["127.0.0.1:5672"])
    except HoldfastError as error:
        raise SystemExit(f"{error}\n{error.advice}") from error
