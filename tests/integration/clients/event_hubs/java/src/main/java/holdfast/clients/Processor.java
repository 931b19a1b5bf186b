package holdfast.clients;

import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.eventhubs.EventData;
import com.azure.messaging.eventhubs.EventHubClientBuilder;
import com.azure.messaging.eventhubs.EventHubProducerClient;
import com.azure.messaging.eventhubs.EventProcessorClientBuilder;
import com.azure.messaging.eventhubs.checkpointstore.blob.BlobCheckpointStore;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.messaging.eventhubs.models.SendOptions;
import com.azure.storage.blob.BlobContainerClientBuilder;
import java.io.IOException;
import java.time.Duration;
import java.util.List;

/**
 * A producer or a processor on the Java SDK of Event Hubs, with the SDK's own Blob store. What it learns it writes as JSON,
 * one object a line; it goes on until its standard input ends.
 */
public final class Processor {
    /** Between two batches: what is tested is failures, and a full speed would only hide them behind load. */
    private static final long PACE_MS = 20;

    private static volatile boolean over = false;

    public static void main(String[] words) throws Exception {
        var stopped = new Thread(Processor::untilInputEnds);
        stopped.start();
        try {
            if (words[0].equals("send")) {
                send(words[1]);
            } else {
                process(words[1], words[2], words[3], stopped);
            }
        } catch (RuntimeException error) {
            fail("program", error);
            System.exit(1);
        }
        System.exit(0);  // the SDK's threads go on for a while
    }

    private static void untilInputEnds() {
        try {
            System.in.readAllBytes();
        } catch (IOException error) {
            fail("standard input", error);
        }
        over = true;
    }

    private static void send(String text) throws InterruptedException {
        var producer = new EventHubClientBuilder().connectionString(text).buildProducerClient();
        var partitions = producer.getEventHubProperties().getPartitionIds().stream().toList();
        for (var number = 0; !over; number++) {
            var partition = partitions.get(number % partitions.size());
            var body = partition + " " + number;
            sendOnce(producer, body, new SendOptions().setPartitionId(partition));
            say("{\"acknowledged\": [\"%s\"]}", body);
            Thread.sleep(PACE_MS);
        }
        producer.close();
    }

    private static void sendOnce(EventHubProducerClient producer, String body, SendOptions where) {
        try {
            producer.send(List.of(new EventData(body)), where);
        } catch (AmqpException error) {
            // The SDK's word for a connection that ends while it opens a link: it takes the link's limit for 0, sends
            // nothing, and does not try again.
            if (!error.getMessage().contains("maximum message size: 0 kb")) {
                throw error;
            }
            sendOnce(producer, body, where);
        }
    }

    private static void process(String text, String store, String group, Thread stopped) throws InterruptedException {
        var container = new BlobContainerClientBuilder().connectionString(store).containerName("checkpoints");
        var processor = new EventProcessorClientBuilder()
            .connectionString(text)
            .consumerGroup(group)
            .checkpointStore(new BlobCheckpointStore(container.buildAsyncClient()))
            .loadBalancingUpdateInterval(Duration.ofSeconds(1))
            .partitionOwnershipExpirationInterval(Duration.ofSeconds(10))
            .initialPartitionEventPosition(partition -> EventPosition.earliest())
            .processPartitionInitialization(one -> say("{\"owns\": \"%s\"}", one.getPartitionContext().getPartitionId()))
            .processPartitionClose(one -> say("{\"lost\": \"%s\"}", one.getPartitionContext().getPartitionId()))
            .processEvent(one -> {
                var event = one.getEventData();
                say("{\"event\": \"%s\", \"at\": \"%s\", \"sequence\": %d}", event.getBodyAsString(),
                    one.getPartitionContext().getPartitionId(), event.getSequenceNumber());
                one.updateCheckpoint();
            })
            .processError(one -> {
                // Once it is told to stop, it reports its own scheduler, which it has disposed of.
                if (!over && !String.valueOf(one.getThrowable().getMessage()).contains("with higher epoch")) {
                    fail(one.getPartitionContext().getPartitionId(), one.getThrowable());
                }
            })
            .buildEventProcessorClient();
        processor.start();
        stopped.join();
        processor.stop();
    }

    private static void fail(String where, Throwable error) {
        var cause = error.getCause() == null ? "" : " / " + error.getCause();
        var words = (where + ": " + error + cause).replaceAll("[\"\\\\\\p{Cntrl}]", " ");
        say("{\"failed\": \"%s\"}", words);
    }

    private static void say(String form, Object... values) {
        var line = String.format(form, values);
        synchronized (System.out) {
            System.out.println(line);
        }
    }
}
