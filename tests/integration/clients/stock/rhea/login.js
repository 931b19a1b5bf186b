// rhea logs in over TLS by PLAIN, sends one message, and prints one JSON line.
//
//   node login.js HOST PORT CA USER PASSWORD LOG
'use strict';

const fs = require('fs');
const rhea = require(require.resolve('rhea', { paths: [process.env.RHEA_HOME] }));
const [host, port, ca, username, password, log] = process.argv.slice(2);

function done(said) {
    process.stdout.write(JSON.stringify(said) + '\n');
    process.exit(0);
}

const container = rhea.create_container();
for (const event of ['connection_error', 'sender_error', 'disconnected', 'rejected']) {
    container.on(event, (context) => {
        const error = context.error || (context.sender || context.connection || {}).error;
        done({ error: `${event}: ${error && (error.condition || error.message || error)}` });
    });
}
container.on('error', (error) => done({ error: `${error.name}: ${error.message}` }));
container.once('sendable', (context) => context.sender.send({ body: 'rhea' }));
container.on('accepted', () => done({ sent: true }));
container.connect({
    host, port: Number(port), username, password, transport: 'tls', ca: fs.readFileSync(ca), servername: 'localhost',
    reconnect: false,
}).open_sender(log);
