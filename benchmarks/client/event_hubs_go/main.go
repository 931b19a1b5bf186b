// Publishes events to partition 0 through the Go SDK of Event Hubs: CONNECTION-STRING BYTES SECONDS. Says how many.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	hubs "github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	ctx := context.Background()
	size, err := strconv.Atoi(os.Args[2])
	check(err)
	seconds, err := strconv.ParseFloat(os.Args[3], 64)
	check(err)
	producer, err := hubs.NewProducerClientFromConnectionString(os.Args[1], "", nil)
	check(err)
	partition := "0"
	batch, err := producer.NewEventDataBatch(ctx, &hubs.EventDataBatchOptions{PartitionID: &partition})
	check(err)
	body := make([]byte, size)
	for err == nil {
		err = batch.AddEventData(&hubs.EventData{Body: body}, nil)
	}
	if !errors.Is(err, hubs.ErrEventDataTooLarge) {
		log.Fatal(err)
	}
	events := 0
	for until := time.Now().Add(time.Duration(seconds * float64(time.Second))); time.Now().Before(until); {
		check(producer.SendEventDataBatch(ctx, batch, nil))
		events += int(batch.NumEvents())
	}
	fmt.Println(events)
	check(producer.Close(ctx))
}
