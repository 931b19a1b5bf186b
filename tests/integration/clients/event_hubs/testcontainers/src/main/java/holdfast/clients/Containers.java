package holdfast.clients;

import com.azure.messaging.eventhubs.EventData;
import com.azure.messaging.eventhubs.EventHubClientBuilder;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.messaging.eventhubs.models.SendOptions;
import java.time.Duration;
import java.util.List;
import org.testcontainers.azure.AzuriteContainer;
import org.testcontainers.azure.EventHubsEmulatorContainer;
import org.testcontainers.containers.Network;
import org.testcontainers.images.builder.Transferable;
import org.testcontainers.utility.DockerImageName;

/**
 * A test as users of Testcontainers write it: the module's containers, with other names of images, and the SDK with the
 * string that the module gives. Words: the emulator's image, Azurite's image. Each thing is a line.
 */
public final class Containers {
    private static final Duration WITHIN = Duration.ofMinutes(2);
    private static final String CONFIG = """
        {"UserConfig": {
          "NamespaceConfig": [{"Type": "EventHub", "Name": "emulatorNs1", "Entities": [
            {"Name": "orders", "PartitionCount": "2", "ConsumerGroups": [{"Name": "cg1"}]}]}],
          "LoggingConfig": {"Type": "File"}}}
        """;

    public static void main(String[] words) {
        var emulatorImage = DockerImageName.parse(words[0])
            .asCompatibleSubstituteFor("mcr.microsoft.com/azure-messaging/eventhubs-emulator");
        var azuriteImage = DockerImageName.parse(words[1])
            .asCompatibleSubstituteFor("mcr.microsoft.com/azure-storage/azurite");
        try (var network = Network.newNetwork();
             var azurite = new AzuriteContainer(azuriteImage).withNetwork(network);
             var emulator = new EventHubsEmulatorContainer(emulatorImage)
                 .acceptLicense()
                 .withNetwork(network)
                 .withConfig(Transferable.of(CONFIG))
                 .withAzuriteContainer(azurite)) {
            emulator.start();
            sendAndReceive(emulator.getConnectionString());
        }
        System.exit(0);  // the SDK's threads go on for a while
    }

    private static void sendAndReceive(String text) {
        var builder = new EventHubClientBuilder().connectionString(text, "orders").consumerGroup("cg1");
        try (var producer = builder.buildProducerClient(); var consumer = builder.buildConsumerClient()) {
            System.out.println("partitions " + producer.getEventHubProperties().getPartitionIds().stream().toList());
            producer.send(List.of(new EventData("first"), new EventData("second")), new SendOptions().setPartitionId("1"));
            for (var one : consumer.receiveFromPartition("1", 2, EventPosition.earliest(), WITHIN)) {
                System.out.println("event " + one.getData().getBodyAsString() + " " + one.getData().getSequenceNumber());
            }
        }
    }
}
