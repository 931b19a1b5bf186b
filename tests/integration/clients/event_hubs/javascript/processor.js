// A producer or a processor on the JavaScript SDK of Event Hubs, with the SDK's own Blob store. What it learns it writes as
// JSON, one object a line; it goes on until its standard input ends.
'use strict';

const path = require('path');
const from = (...words) => require(path.join(process.env.SDK_HOME, 'node_modules', '@azure', ...words));
const { EventHubConsumerClient, EventHubProducerClient, earliestEventPosition } = from('event-hubs');
const { BlobCheckpointStore } = from('eventhubs-checkpointstore-blob');
const { ContainerClient } = from('storage-blob');

const PACE_MS = 20; // between two batches: what is tested is failures, and a full speed would only hide them behind load

// A producer whose connection dies with an event in flight waits for this timeout, and then for the delay: by default 60 s
// and 30 s.
const RETRIES = { timeoutInMs: 10000, retryDelayInMs: 500 };

// The SDK's word for a connection that ends while it opens a link. It takes the partition anew soon after.
const OWN_FAULT = 'Unknown error encountered.';

const [kind, text, storeText, group] = process.argv.slice(2);
const say = (what) => process.stdout.write(JSON.stringify(what) + '\n');
const failure = (error) => ({ name: error.name, code: error.code, message: error.message });
let over = false;
const stopped = new Promise((resolve) => process.stdin.on('end', () => { over = true; resolve(); }).resume());

async function send() {
    const producer = new EventHubProducerClient(text, { retryOptions: RETRIES });
    const partitions = await producer.getPartitionIds();
    for (let number = 0; !over; number += 1) {
        const partitionId = partitions[number % partitions.length];
        const body = `${partitionId} ${number}`;
        await producer.sendBatch([{ body }], { partitionId });
        say({ acknowledged: [body] });
        await new Promise((resolve) => setTimeout(resolve, PACE_MS));
    }
    await producer.close();
}

async function run() {
    const store = new BlobCheckpointStore(new ContainerClient(storeText, 'checkpoints'));
    const consumer = new EventHubConsumerClient(group, text, store, {
        loadBalancingOptions: { strategy: 'balanced', updateIntervalInMs: 1000, partitionOwnershipExpirationIntervalInMs: 10000 },
    });
    const subscription = consumer.subscribe({
        processInitialize: async (context) => say({ owns: context.partitionId }),
        processClose: async (reason, context) => say({ lost: context.partitionId, reason }),
        processEvents: async (events, context) => {
            for (const event of events) say({ event: String(event.body), at: context.partitionId, sequence: event.sequenceNumber });
            if (events.length > 0) await context.updateCheckpoint(events[events.length - 1]);
        },
        processError: async (error, context) => {
            if (error.code !== 'ReceiverDisconnectedError' && error.message !== OWN_FAULT) say({ failed: { ...failure(error), at: context.partitionId } });
        },
    }, { startPosition: earliestEventPosition, maxBatchSize: 100, maxWaitTimeInSeconds: 1 });
    await stopped;
    await subscription.close();
    await consumer.close();
}

({ send, process: run })[kind]().then(() => process.exit(0), (error) => { say({ failed: failure(error) }); process.exit(1); });
