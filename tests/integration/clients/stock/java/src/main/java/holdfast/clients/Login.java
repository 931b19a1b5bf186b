package holdfast.clients;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Session;
import org.apache.qpid.jms.JmsConnectionFactory;

/** Qpid JMS logs in over TLS: {@code Login HOST PORT TRUST MECHANISM USER PASSWORD LOG}. Sends one message; one JSON line. */
public final class Login {
    private Login() {}

    public static void main(String[] words) {
        String uri = "amqps://" + words[0] + ":" + words[1] + "?amqp.saslMechanisms=" + words[3]
            + "&transport.trustStoreLocation=" + words[2] + "&transport.trustStorePassword=password"
            + "&jms.requestTimeout=" + Steps.WAIT_MS + "&jms.connectTimeout=" + Steps.WAIT_MS;
        try (Connection connection = new JmsConnectionFactory(words[4], words[5], uri).createConnection()) {
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            session.createProducer(session.createQueue(words[6])).send(session.createTextMessage("jms"));
            System.out.println("{\"sent\": true}");
        } catch (JMSException error) {
            System.out.println("{\"error\": \"" + error.getClass().getSimpleName() + "\"}");
        }
    }
}
