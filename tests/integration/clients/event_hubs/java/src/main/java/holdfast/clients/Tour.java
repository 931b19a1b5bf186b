package holdfast.clients;

import com.azure.messaging.eventhubs.EventData;
import com.azure.messaging.eventhubs.EventHubClientBuilder;
import com.azure.messaging.eventhubs.models.CreateBatchOptions;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.messaging.eventhubs.models.ReceiveOptions;
import com.azure.messaging.eventhubs.models.SendOptions;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/** The Java SDK of Event Hubs: it sends, asks and reads, with an owner that is ousted. Each thing is a line. */
public final class Tour {
    private static final Duration WITHIN = Duration.ofMinutes(2);

    public static void main(String[] words) throws Exception {
        var builder = new EventHubClientBuilder().connectionString(words[0]).consumerGroup("$Default");
        var producer = builder.buildProducerClient();
        var hub = producer.getEventHubProperties();
        System.out.println("hub " + hub.getName() + " " + hub.getPartitionIds().stream().collect(Collectors.joining(" ")));
        var batch = producer.createBatch(new CreateBatchOptions().setPartitionId("0"));
        System.out.println("most " + batch.getMaxSizeInBytes());
        batch.tryAdd(new EventData("first"));
        batch.tryAdd(new EventData("second"));
        producer.send(batch);
        producer.send(List.of(new EventData("keyed")), new SendOptions().setPartitionKey("order-42"));
        var partition = producer.getPartitionProperties("0");
        System.out.println("partition " + partition.getBeginningSequenceNumber() + " "
            + partition.getLastEnqueuedSequenceNumber() + " " + partition.isEmpty());
        try {
            producer.send(List.of(new EventData("nowhere")), new SendOptions().setPartitionId("77"));
        } catch (RuntimeException error) {
            System.out.println("refused " + error.getMessage().startsWith("The specified partition is invalid"));
        }

        var told = new ReceiveOptions().setTrackLastEnqueuedEventProperties(true);
        var consumer = builder.buildConsumerClient();
        for (var one : consumer.receiveFromPartition("0", 2, EventPosition.earliest(), WITHIN, told)) {
            System.out.println("event " + one.getData().getBodyAsString() + " " + one.getData().getSequenceNumber() + " "
                + one.getLastEnqueuedEventProperties().getSequenceNumber());
        }
        var received = new CompletableFuture<Void>();
        var ousted = new CompletableFuture<String>();
        var owner = builder.buildAsyncConsumerClient();
        owner.receiveFromPartition("0", EventPosition.earliest(), new ReceiveOptions().setOwnerLevel(1L))
            .subscribe(event -> received.complete(null), error -> ousted.complete(error.getMessage()));
        received.get(WITHIN.toSeconds(), TimeUnit.SECONDS);
        var other = builder.buildAsyncConsumerClient();
        var second = other.receiveFromPartition("0", EventPosition.fromSequenceNumber(0), new ReceiveOptions().setOwnerLevel(2L))
            .blockFirst(WITHIN);
        System.out.println("behind the first " + second.getData().getBodyAsString());
        var why = ousted.get(WITHIN.toSeconds(), TimeUnit.SECONDS);
        System.out.println("ousted " + why.contains("with higher epoch of '2' is created"));
        other.close();
        owner.close();
        consumer.close();
        producer.close();
        System.exit(0);  // the SDK's threads go on for a while
    }
}
