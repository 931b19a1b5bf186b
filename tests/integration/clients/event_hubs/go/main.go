// The Go SDK of Event Hubs: it sends, asks and reads, with an owner that is ousted. Each thing that it learns is a line.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	hubs "github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func of[T any](value T) *T { return &value }

func send(ctx context.Context, producer *hubs.ProducerClient, where *hubs.EventDataBatchOptions, bodies ...string) {
	batch, err := producer.NewEventDataBatch(ctx, where)
	check(err)
	for _, body := range bodies {
		check(batch.AddEventData(&hubs.EventData{Body: []byte(body)}, nil))
	}
	check(producer.SendEventDataBatch(ctx, batch, nil))
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	producer, err := hubs.NewProducerClientFromConnectionString(os.Args[1], "", nil)
	check(err)
	about, err := producer.GetEventHubProperties(ctx, nil)
	check(err)
	fmt.Println("hub", about.Name, about.PartitionIDs)
	send(ctx, producer, &hubs.EventDataBatchOptions{PartitionID: of("0")}, "first", "second")
	send(ctx, producer, &hubs.EventDataBatchOptions{PartitionKey: of("order-42")}, "keyed")
	partition, err := producer.GetPartitionProperties(ctx, "0", nil)
	check(err)
	fmt.Println("partition", partition.BeginningSequenceNumber, partition.LastEnqueuedSequenceNumber, partition.LastEnqueuedOffset)

	consumer, err := hubs.NewConsumerClientFromConnectionString(os.Args[1], "", hubs.DefaultConsumerGroup, nil)
	check(err)
	owner := func(level int64, start hubs.StartPosition) *hubs.PartitionClient {
		client, err := consumer.NewPartitionClient("0", &hubs.PartitionClientOptions{OwnerLevel: &level, StartPosition: start})
		check(err)
		return client
	}
	first := owner(1, hubs.StartPosition{Earliest: of(true)})
	events, err := first.ReceiveEvents(ctx, 2, nil)
	check(err)
	for _, event := range events {
		fmt.Println("event", string(event.Body), event.SequenceNumber, event.Offset)
	}
	second := owner(2, hubs.StartPosition{Offset: of("0")})
	events, err = second.ReceiveEvents(ctx, 1, nil)
	check(err)
	fmt.Println("behind the first", string(events[0].Body))
	_, err = first.ReceiveEvents(ctx, 1, nil)
	var lost *hubs.Error
	fmt.Println("ousted", errors.As(err, &lost) && lost.Code == hubs.ErrorCodeOwnershipLost)
	check(producer.Close(ctx))
	check(consumer.Close(ctx))
}
