"""A topic's life on a real broker: made, written, read back as a stranger would, removed."""

import atexit
import functools
import os
import pathlib
import shutil
import subprocess
import threading
import time

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, ResourceType

from . import cases

ADMIN = threading.Lock()
SCRIPT = str(pathlib.Path(__file__).parents[3] / "scripts/kafka")


def start_own(folder, *flags):
    """A broker for this script alone, with its data in `folder`, and named by KAFKA_BOOTSTRAP; both end with the
    script. False where there can be none."""
    atexit.register(stop_own, folder)
    up = subprocess.run([SCRIPT, "up", "--dir", str(folder), *flags], stdout=subprocess.PIPE, text=True)
    if up.returncode:
        return False
    os.environ["KAFKA_BOOTSTRAP"] = up.stdout.strip().split("=")[1]
    return True


def stop_own(folder):
    subprocess.run([SCRIPT, "down", "--wipe", "--dir", str(folder)], stderr=subprocess.DEVNULL)
    shutil.rmtree(folder, ignore_errors=True)


def bootstrap():
    return os.environ["KAFKA_BOOTSTRAP"]


def admin():
    """One for all, threads too: an answer is lost with the client that asked."""
    with ADMIN:
        return the_admin()


@functools.cache
def the_admin():
    return AdminClient({"bootstrap.servers": bootstrap()})


def done(futures, seconds=30):
    for future in futures.values():
        future.result(seconds)


def partitions_of(topic):
    """The partitions' numbers; empty where there is no such topic."""
    found = admin().list_topics(timeout=10).topics.get(topic)
    return sorted(found.partitions) if found and not found.error else []


def create(topic, partitions, config=None):
    done(admin().create_topics([NewTopic(topic, partitions, -1, config=config or {})]))
    cases.until(f"topic {topic}", lambda: len(partitions_of(topic)) == partitions, 20)


def delete(*topics):
    there = [t for t in topics if partitions_of(t)]
    done(admin().delete_topics(there)) if there else None
    cases.until(f"{there} gone", lambda: not any(partitions_of(t) for t in there), 20)


def add_partitions(topic, total):
    done(admin().create_partitions([NewPartitions(topic, total)]))


def configure(topic, name, value):
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    done(admin().incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]))


def delete_records(topic, partition, before):
    """Removes the records below `before` (exclusive)."""
    done(admin().delete_records([TopicPartition(topic, partition, before)]))


def produce(topic, records, **config):
    """Sends [(partition, payload or None)], or with a timestamp in ms as third, and returns when the broker
    has acknowledged all."""
    failed = []
    given = {name.replace("_", "."): value for name, value in config.items()}
    producer = Producer({"bootstrap.servers": bootstrap(), "linger.ms": 5} | given)
    told = lambda error, _: failed.append(error) if error else None
    for partition, value, *when in records:
        while True:
            try:
                producer.produce(topic, value, partition=partition, timestamp=when[0] if when else 0, on_delivery=told)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(60) == 0 and not failed, f"the broker refused {failed[:3]}"


class Feed(threading.Thread):
    """Sends records in pieces over about `seconds`."""

    def __init__(self, topic, records, seconds, pieces=20):
        super().__init__(daemon=True)
        self.topic, self.records, self.pause, self.pieces = topic, records, seconds / pieces, pieces
        self.error = None
        self.start()

    def run(self):
        size = -(-len(self.records) // self.pieces)
        try:
            for at in range(0, len(self.records), size):
                produce(self.topic, self.records[at:at + size])
                time.sleep(self.pause)  # the rate of the traffic, nothing waits for it
        except Exception as error:
            self.error = error

    def finish(self):
        self.join(120)
        assert not self.is_alive() and self.error is None, f"the producer: {self.error or 'hangs'}"


def console_producer(topic, payloads):
    """Kafka's own console producer, one line per record, partitions as it likes."""
    lines = b"".join(p + b"\n" for p in payloads)
    subprocess.run([SCRIPT, "console-producer", "--topic", topic], input=lines, check=True, timeout=120,
                   stdout=subprocess.DEVNULL)


def messages(topic):
    """Every committed message, in the order of each partition's offsets."""
    consumer = Consumer({"bootstrap.servers": bootstrap(), "group.id": "stranger", "enable.partition.eof": True,
                         "enable.auto.commit": False, "fetch.wait.max.ms": 20,
                         "isolation.level": "read_committed"})
    try:
        open_ends = set(partitions_of(topic))
        # -2: the beginning.
        consumer.assign([TopicPartition(topic, p, -2) for p in open_ends])
        found, deadline = [], time.monotonic() + 300
        while open_ends:
            assert time.monotonic() < deadline, f"{topic} was not read to its end within 300 s"
            for message in consumer.consume(10_000, 0.05):
                if message.error() and message.error().code() == KafkaError._PARTITION_EOF:
                    open_ends.discard(message.partition())
                elif message.error():
                    raise KafkaException(message.error())
                else:
                    found.append(message)
        return found
    finally:
        consumer.close()


def log(topic):
    return [(m.partition(), m.offset(), m.value()) for m in messages(topic)]


def lag(topic, group="retrytoll"):
    """Offsets between what the group committed and each partition's end, summed; None without a commit."""
    wanted = [TopicPartition(topic, p) for p in partitions_of(topic)]
    futures = admin().list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])
    committed = {p.partition: p.offset for p in next(iter(futures.values())).result(20).topic_partitions}
    consumer = Consumer({"bootstrap.servers": bootstrap(), "group.id": "stranger"})
    try:
        ends = {p.partition: consumer.get_watermark_offsets(p, timeout=10)[1] for p in wanted}
    finally:
        consumer.close()
    if any(committed[p] < 0 and ends[p] > 0 for p in ends):
        return None
    return sum(end - max(committed[p], 0) for p, end in ends.items())


def forget_group(group):
    """Removes a group with no members, and every offset that it committed."""
    done(admin().delete_consumer_groups([group]))
