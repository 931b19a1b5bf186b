package holdfast.clients;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.qpid.jms.JmsConnectionFactory;

/** Qpid JMS: {@code Jms HOST PORT ID transacted|plain}. JMS cannot name a partition: the node chooses. */
public final class Jms implements Steps.Client {
    private final Connection connection;
    private final Session session;
    private final Map<String, MessageProducer> producers = new HashMap<>();
    private final Map<String, MessageConsumer> consumers = new HashMap<>();

    private Jms(String host, String port, String id, boolean transacted) throws JMSException {
        String uri = "amqp://" + host + ":" + port + "?amqp.saslMechanisms=ANONYMOUS&jms.requestTimeout=" + Steps.WAIT_MS;
        connection = new JmsConnectionFactory(uri).createConnection();
        connection.setClientID(id);
        connection.start();
        session = transacted
            ? connection.createSession(Session.SESSION_TRANSACTED)
            : connection.createSession(Session.AUTO_ACKNOWLEDGE);
    }

    public static void main(String[] words) throws Exception {
        Steps.run(new Jms(words[0], words[1], words[2], words[3].equals("transacted")));
    }

    @Override
    public void subscribe(String name, String log) throws JMSException {
        consumers.put(name, session.createDurableConsumer(session.createTopic(log), name));
    }

    @Override
    public void send(String log, String partition, List<String> bodies) throws JMSException {
        MessageProducer producer = producers.get(log);
        if (producer == null) {
            producer = session.createProducer(session.createQueue(log));
            producers.put(log, producer);
        }
        for (String body : bodies) {
            producer.send(session.createTextMessage(body));
        }
    }

    @Override
    public List<String> receive(String name, int count) throws JMSException {
        List<String> bodies = new ArrayList<>();
        while (bodies.size() < count) {
            TextMessage message = (TextMessage) consumers.get(name).receive(Steps.WAIT_MS);
            if (message == null) {
                throw new IllegalStateException("only " + bodies);
            }
            bodies.add(message.getText());
        }
        return bodies;
    }

    @Override
    public void commit() throws JMSException {
        session.commit();
    }

    @Override
    public void rollback() throws JMSException {
        session.rollback();
    }

    @Override
    public void close() throws JMSException {
        connection.close();
    }
}
