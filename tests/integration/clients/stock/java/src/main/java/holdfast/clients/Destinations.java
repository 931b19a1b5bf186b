package holdfast.clients;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * Qpid JMS, which can name a destination and nothing else: {@code Destinations HOST PORT LOG}. Does what JMS offers on
 * queues and topics, and says what came of each, a line each: the step, and what it gave.
 */
public final class Destinations {
    private static final long WAIT_MS = 120_000;

    private final Session session;
    private final String log;

    private Destinations(Session session, String log) {
        this.session = session;
        this.log = log;
    }

    public static void main(String[] words) throws Exception {
        String options = "?amqp.saslMechanisms=ANONYMOUS&jms.requestTimeout=" + WAIT_MS;
        String uri = "amqp://" + words[0] + ":" + words[1] + options;
        Connection connection = new JmsConnectionFactory(uri).createConnection();
        connection.setClientID(words[2]);
        connection.start();
        try {
            new Destinations(connection.createSession(Session.AUTO_ACKNOWLEDGE), words[2]).run();
        } catch (JMSException | RuntimeException problem) {
            problem.printStackTrace();
            System.exit(1); // the client's threads would go on
        }
        connection.close();
        say("closed", "in peace");
    }

    private void run() throws JMSException {
        send(session.createProducer(session.createQueue(log + "?key=ann")), "by address", null);
        send(session.createProducer(session.createQueue(log)), "by group", "ann");
        MessageProducer anywhere = session.createProducer(null);
        anywhere.send(session.createQueue(log + "?key=ann"), session.createTextMessage("by relay"));
        say("browsed", browse(null));
        say("selected", browse("colour = 'red'"));

        subscribed("m1", true);
        say("went on", subscribed("m2", false));
        session.unsubscribe("packing");
        say("began anew", subscribed("m3", true));
        session.unsubscribe("packing");
        say("unsubscribed twice", refused(() -> session.unsubscribe("packing")));
        say("unrouted", refused(() -> anywhere.send(session.createQueue("nowhere"), session.createMessage())));
        say("temporary", refused(session::createTemporaryQueue));
        answers();
    }

    private void send(MessageProducer producer, String body, String group) throws JMSException {
        TextMessage message = session.createTextMessage(body);
        if (group != null) {
            message.setStringProperty("JMSXGroupID", group);
            message.setStringProperty("colour", "red");
        }
        producer.send(message);
        producer.close();
    }

    private String browse(String selector) throws JMSException {
        List<String> found = new ArrayList<>();
        try (QueueBrowser browser = session.createBrowser(session.createQueue(log), selector)) {
            for (Object message : Collections.list(browser.getEnumeration())) {
                found.add(((TextMessage) message).getText());
            }
        }
        return String.join(",", found);
    }

    /** A durable subscriber that is there while a message is sent, or comes behind it, and what it gets first. */
    private String subscribed(String body, boolean first) throws JMSException {
        MessageProducer producer = session.createProducer(session.createTopic(log));
        if (!first) {
            producer.send(session.createTextMessage(body));
        }
        try (MessageConsumer consumer = session.createDurableConsumer(session.createTopic(log), "packing")) {
            if (first) {
                producer.send(session.createTextMessage(body));
            }
            return text(consumer.receive(WAIT_MS));
        } finally {
            producer.close();
        }
    }

    /** A request that names a log for its answer, and the answer that is told by its property. */
    private void answers() throws JMSException {
        MessageConsumer service = session.createConsumer(session.createQueue(log));
        MessageConsumer caller = session.createConsumer(session.createQueue(log + "-answers"), "request = 'r1'");
        TextMessage request = session.createTextMessage("question");
        request.setJMSReplyTo(session.createQueue(log + "-answers"));
        request.setJMSCorrelationID("r1");
        session.createProducer(session.createQueue(log)).send(request);
        Message asked = service.receive(WAIT_MS);
        MessageProducer replies = session.createProducer(null);
        for (String id : List.of("r0", asked.getJMSCorrelationID())) {
            TextMessage answer = session.createTextMessage("answer to " + id);
            answer.setStringProperty("request", id);
            replies.send(asked.getJMSReplyTo(), answer);
        }
        say("answered", text(caller.receive(WAIT_MS)));
    }

    private static String text(Message message) throws JMSException {
        return message == null ? "nothing" : ((TextMessage) message).getText();
    }

    /** A step that must be refused, and the reason. */
    private static String refused(Step step) {
        try {
            step.take();
            return "not refused";
        } catch (JMSException problem) {
            return problem.getClass().getSimpleName() + ": " + problem.getMessage();
        }
    }

    private interface Step {
        void take() throws JMSException;
    }

    private static void say(String step, String what) {
        System.out.println(step + "=" + what);
        System.out.flush();
    }
}
