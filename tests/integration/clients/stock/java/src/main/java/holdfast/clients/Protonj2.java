package holdfast.clients;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.protonj2.client.Client;
import org.apache.qpid.protonj2.client.ClientOptions;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.ConnectionOptions;
import org.apache.qpid.protonj2.client.Delivery;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.ReceiverOptions;
import org.apache.qpid.protonj2.client.Sender;
import org.apache.qpid.protonj2.client.SenderOptions;
import org.apache.qpid.protonj2.client.Session;
import org.apache.qpid.protonj2.client.Tracker;
import org.apache.qpid.protonj2.client.exceptions.ClientException;
import org.apache.qpid.protonj2.types.Symbol;

/**
 * The protonj2 client: {@code Protonj2 HOST PORT ID transacted|plain}. In transacted mode the next transaction begins
 * where one ends, as in JMS. Receivers ask for no more than is to be received: what this client has fetched ahead it
 * keeps over a rollback, and hands out before what was rolled back.
 */
public final class Protonj2 implements Steps.Client {
    private final Client client;
    private final Connection connection;
    private final Session session;
    private final boolean transacted;
    private final Map<String, Sender> senders = new HashMap<>();
    private final Map<String, Receiver> receivers = new HashMap<>();

    private Protonj2(String host, String port, String id, boolean transacted) throws ClientException {
        client = Client.create(new ClientOptions().id(id));
        ConnectionOptions options = new ConnectionOptions().requestTimeout(Steps.WAIT_MS).sendTimeout(Steps.WAIT_MS);
        options.saslOptions().addAllowedMechanism("ANONYMOUS");
        connection = client.connect(host, Integer.parseInt(port), options);
        session = connection.openSession();
        this.transacted = transacted;
        begin();
    }

    public static void main(String[] words) throws Exception {
        Steps.run(new Protonj2(words[0], words[1], words[2], words[3].equals("transacted")));
    }

    private void begin() throws ClientException {
        if (transacted) {
            session.beginTransaction();
        }
    }

    @Override
    public void subscribe(String name, String log) throws Exception {
        ReceiverOptions options = new ReceiverOptions().creditWindow(0);
        receivers.put(name, session.openDurableReceiver(log, name, options).openFuture().get());
    }

    @Override
    public void send(String log, String partition, List<String> bodies) throws ClientException {
        Sender sender = senders.get(log + "/" + partition);
        if (sender == null) {
            SenderOptions options = new SenderOptions();
            if (!partition.equals("-")) {
                options.properties(Map.of("event-streams-partition", Symbol.valueOf(partition)));
            }
            sender = session.openSender(log, options);
            senders.put(log + "/" + partition, sender);
        }
        List<Tracker> sent = new ArrayList<>();
        for (String body : bodies) {
            sent.add(sender.send(Message.create(body)));
        }
        for (Tracker tracker : sent) {
            tracker.awaitSettlement(Steps.WAIT_MS, TimeUnit.MILLISECONDS);
            if (tracker.remoteState() == null || !tracker.remoteState().isAccepted()) {
                throw new IllegalStateException("the outcome of a message is " + tracker.remoteState());
            }
        }
    }

    @Override
    public List<String> receive(String name, int count) throws ClientException {
        List<String> bodies = new ArrayList<>();
        Receiver receiver = receivers.get(name);
        receiver.addCredit(count);
        while (bodies.size() < count) {
            Delivery delivery = receiver.receive(Steps.WAIT_MS, TimeUnit.MILLISECONDS);
            if (delivery == null) {
                throw new IllegalStateException("only " + bodies);
            }
            Message<String> message = delivery.message();
            bodies.add(message.body());
        }
        return bodies;
    }

    @Override
    public void commit() throws ClientException {
        session.commitTransaction();
        begin();
    }

    @Override
    public void rollback() throws ClientException {
        session.rollbackTransaction();
        begin();
    }

    @Override
    public void close() {
        connection.close();
        client.close();
    }
}
