// The JavaScript SDK of Event Hubs, as a program of one of four kinds: tour, send, read, websocket. What it learns it writes as
// JSON, one object a line; `send` and `read` go on until their standard input ends.
'use strict';

const path = require('path');
const {
    EventHubBufferedProducerClient,
    EventHubConsumerClient,
    EventHubProducerClient,
    earliestEventPosition,
} = require(path.join(process.env.SDK_HOME, 'node_modules', '@azure', 'event-hubs'));

const [kind, text, partition] = process.argv.slice(2);
const say = (what) => process.stdout.write(JSON.stringify(what) + '\n');
const failure = (error) => ({ name: error.name, code: error.code, message: error.message });

// Events that are handed over together: a reader of single ones is slower than the sender, and longer and longer behind.
const MOST_EVENTS = 100;

// A producer whose connection dies with an event in flight waits for this timeout, and then for the delay: by default 60 s
// and 30 s.
const RETRIES = { timeoutInMs: 10000, retryDelayInMs: 500 };

const stopped = new Promise((resolve) => process.stdin.on('end', resolve).resume());

async function tour() {
    const producer = new EventHubProducerClient(text, { retryOptions: { maxRetries: 0 } });
    const batch = await producer.createBatch({ partitionId: '0' });
    batch.tryAdd({ body: 'first', properties: { n: 1 } });
    batch.tryAdd({ body: { rich: true } });
    await producer.sendBatch(batch);
    await producer.sendBatch([{ body: 'keyed' }, { body: 'keyed too' }], { partitionKey: 'order-42' });
    say({ hub: await producer.getEventHubProperties(), most: batch.maxSizeInBytes });
    say({ partition: await producer.getPartitionProperties('0') });
    for (const options of [{ partitionId: '77' }]) {
        await producer.sendBatch([{ body: 'x' }], options).then(() => say({ sent: options }), (e) => say({ refused: failure(e) }));
    }
    await producer.close();
    await read(4);
    const consumer = new EventHubConsumerClient('$Default', text);
    const error = await new Promise((resolve) => {
        consumer.subscribe('0', { processEvents: async () => {}, processError: async (e) => resolve(e) }, {
            startPosition: { sequenceNumber: 71181 },
        });
    });
    say({ refused: failure(error) });
    await consumer.close();
}

async function read(count) {
    const consumer = new EventHubConsumerClient('$Default', text);
    let seen = 0;
    await new Promise((resolve) => {
        stopped.then(resolve);
        consumer.subscribe({
            processEvents: async (events, context) => {
                for (const event of events) {
                    say({
                        event: event.body, at: context.partitionId, sequence: event.sequenceNumber, offset: event.offset,
                        key: event.partitionKey, enqueued: event.enqueuedTimeUtc,
                        last: (context.lastEnqueuedEventProperties || {}).sequenceNumber,
                    });
                    seen += 1;
                    if (seen === count) resolve();
                }
            },
            processError: async (error) => say({ failed: failure(error) }),
        }, {
            startPosition: earliestEventPosition, trackLastEnqueuedEventProperties: true, maxBatchSize: MOST_EVENTS,
            maxWaitTimeInSeconds: 1,
        });
    });
    await consumer.close();
}

async function send() {
    let over = false;
    stopped.then(() => { over = true; });
    const producer = new EventHubBufferedProducerClient(text, {
        retryOptions: RETRIES,
        enableIdempotentRetries: true,
        maxWaitTimeInMs: 20,
        onSendEventsSuccessHandler: async (context) => say({ acknowledged: context.events.map((event) => event.body) }),
        onSendEventsErrorHandler: async (context) => say({ failed: failure(context.error) }),
    });
    for (let number = 0; !over; number += 1) {
        await producer.enqueueEvent({ body: number }, { partitionId: partition });
        if (number % 10 === 9) await producer.flush();
    }
    await producer.close();
}

// Sends to a partition that is empty, and reads it, by WebSocket.
async function websocket() {
    const options = { webSocketOptions: { webSocket: require(path.join(process.env.SDK_HOME, 'node_modules', 'ws')) } };
    const producer = new EventHubProducerClient(text, options);
    await producer.sendBatch([{ body: 'by wss' }, { body: 'too' }], { partitionId: partition });
    await producer.close();
    const consumer = new EventHubConsumerClient('$Default', text, options);
    const bodies = [];
    await new Promise((resolve, reject) => {
        consumer.subscribe(partition, {
            processEvents: async (events) => {
                bodies.push(...events.map((event) => event.body));
                if (bodies.length >= 2) resolve();
            },
            processError: async (error) => reject(error),
        }, { startPosition: earliestEventPosition, maxWaitTimeInSeconds: 1 });
    });
    await consumer.close();
    say({ read: bodies });
}

({ tour, send, read, websocket })[kind]().then(() => process.exit(0), (error) => { say({ failed: failure(error) }); process.exit(1); });
