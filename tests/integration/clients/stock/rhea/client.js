// A stranger's client: rhea, another implementation of AMQP 1.0. Prints one JSON line per event or answer.
//
//   node client.js produce HOST PORT LOG PARTITION|- COUNT
//   node client.js too-large HOST PORT LOG PARTITION|- BYTES
//   node client.js consume HOST PORT LOG PARTITION|- COUNT
'use strict';

// Found where the test installed it, not beside this file.
const rhea = require(require.resolve('rhea', { paths: [process.env.RHEA_HOME] }));
const { types, message } = rhea;
const [way, host, port, log, partition, countText] = process.argv.slice(2);
const count = Number(countText);
// The delivery-annotations filter: a described map with symbol keys.
const EARLIEST = types.wrap_symbolic_map({ 'event-streams-offset': types.wrap_symbol('@earliest') });
const EARLIEST_FILTER = { start: types.described(types.wrap_ulong(0x200), EARLIEST) };

const print = (value) => process.stdout.write(JSON.stringify(value) + '\n');
const bound = partition === '-' ? undefined : { 'event-streams-partition': types.wrap_symbol(partition) };

function fail(context, what) {
    const error = context.error || (context.sender || context.receiver || context.connection || {}).error;
    process.stderr.write(`${what}: ${error && (error.condition || error.message)} ${error && error.description}\n`);
    process.exit(1);
}

const container = rhea.create_container();
for (const event of ['sender_error', 'receiver_error', 'connection_error', 'disconnected']) {
    container.on(event, (context) => fail(context, event));
}

if (way === 'produce') {
    let sent = 0;
    let answered = 0;
    container.on('sendable', (context) => {
        while (sent < count && context.sender.sendable()) {
            context.sender.send({ body: message.data_section(Buffer.from(`rhea ${sent}`)), message_id: sent });
            sent += 1;
        }
    });
    container.on('settled', (context) => {
        answered += 1;
        print({ accepted: context.delivery.remote_state && context.delivery.remote_state.constructor.composite_type });
        if (answered === count) {
            container.removeAllListeners('disconnected');
            context.connection.close();
        }
    });
    container.connect({ host, port: Number(port), reconnect: false })
        .open_sender({ target: log, properties: bound });
} else if (way === 'too-large') {
    let sent = false;
    container.on('sendable', (context) => {
        if (!sent) {
            sent = true;
            context.sender.send({ body: message.data_section(Buffer.alloc(count)) });
        }
    });
    // rhea tells of the end of a link ahead of the outcomes that came before it.
    let heard = 0;
    const hear = (context, what) => {
        print(what);
        heard += 1;
        if (heard === 2) {
            container.removeAllListeners('disconnected');
            context.connection.close();
        }
    };
    for (const outcome of ['accepted', 'released', 'modified', 'rejected']) {
        container.on(outcome, (context) => {
            hear(context, { outcome, condition: (context.delivery.remote_state.error || {}).condition });
        });
    }
    container.removeAllListeners('sender_error');
    container.on('sender_error', (context) => hear(context, { detached: context.sender.error.condition }));
    container.connect({ host, port: Number(port), reconnect: false })
        .open_sender({ target: log, properties: bound });
} else {
    let received = 0;
    container.on('message', (context) => {
        const body = context.message.body;
        const bytes = body.content !== undefined ? body.content : body;
        print({ body: bytes.toString(), annotations: context.message.delivery_annotations });
        received += 1;
        if (received === count) {
            container.removeAllListeners('disconnected');
            context.connection.close();
        }
    });
    container.connect({ host, port: Number(port), reconnect: false })
        .open_receiver({ source: { address: log, filter: EARLIEST_FILTER }, properties: bound, credit_window: 50 });
}
