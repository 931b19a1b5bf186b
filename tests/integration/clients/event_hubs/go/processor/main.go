// A producer or a processor on the Go SDK of Event Hubs, with the SDK's own Blob store. What it learns it writes as JSON,
// one object a line; it goes on until its standard input ends.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	hubs "github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2/checkpoints"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// Between two batches: what is tested is failures, and a full speed would only hide them behind load.
const pace = 20 * time.Millisecond

type line map[string]any

var writing sync.Mutex

func say(what line) {
	writing.Lock()
	defer writing.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(what); err != nil {
		os.Exit(2)
	}
}

func check(err error) {
	if err != nil {
		say(line{"failed": err.Error()})
		os.Exit(1)
	}
}

func of[T any](value T) *T { return &value }

func send(ctx context.Context, text string) {
	producer, err := hubs.NewProducerClientFromConnectionString(text, "", nil)
	check(err)
	about, err := producer.GetEventHubProperties(context.Background(), nil)
	check(err)
	for number := 0; ctx.Err() == nil; number++ {
		partition := about.PartitionIDs[number%len(about.PartitionIDs)]
		batch, err := producer.NewEventDataBatch(context.Background(), &hubs.EventDataBatchOptions{PartitionID: &partition})
		check(err)
		body := fmt.Sprintf("%s %d", partition, number)
		check(batch.AddEventData(&hubs.EventData{Body: []byte(body)}, nil))
		check(producer.SendEventDataBatch(context.Background(), batch, nil))
		say(line{"acknowledged": []string{body}})
		time.Sleep(pace)
	}
	check(producer.Close(context.Background()))
}

func process(ctx context.Context, text, store, group string) {
	client, err := container.NewClientFromConnectionString(store, "checkpoints", nil)
	check(err)
	kept, err := checkpoints.NewBlobStore(client, nil)
	check(err)
	consumer, err := hubs.NewConsumerClientFromConnectionString(text, "", group, nil)
	check(err)
	processor, err := hubs.NewProcessor(consumer, kept, &hubs.ProcessorOptions{
		UpdateInterval:              time.Second,
		PartitionExpirationDuration: 10 * time.Second,
		StartPositions:              hubs.StartPositions{Default: hubs.StartPosition{Earliest: of(true)}},
	})
	check(err)
	var readers sync.WaitGroup
	readers.Add(1)
	go func() {
		defer readers.Done()
		for {
			partition := processor.NextPartitionClient(ctx)
			if partition == nil {
				return
			}
			readers.Add(1)
			go func() {
				defer readers.Done()
				read(ctx, partition)
			}()
		}
	}()
	check(processor.Run(ctx))
	readers.Wait()
	check(consumer.Close(context.Background()))
}

func read(ctx context.Context, partition *hubs.ProcessorPartitionClient) {
	defer func() { check(partition.Close(context.Background())) }()
	say(line{"owns": partition.PartitionID()})
	for ctx.Err() == nil {
		waiting, cancel := context.WithTimeout(ctx, time.Second)
		events, err := partition.ReceiveEvents(waiting, 100, nil)
		cancel()
		var lost *hubs.Error
		if errors.As(err, &lost) && lost.Code == hubs.ErrorCodeOwnershipLost {
			say(line{"lost": partition.PartitionID()})
			return
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			check(err)
		}
		for _, event := range events {
			say(line{"event": string(event.Body), "at": partition.PartitionID(), "sequence": event.SequenceNumber})
		}
		if len(events) > 0 {
			check(partition.UpdateCheckpoint(context.Background(), events[len(events)-1], nil))
		}
	}
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if os.Args[1] == "send" {
		send(ctx, os.Args[2])
	} else {
		process(ctx, os.Args[2], os.Args[3], os.Args[4])
	}
}
