//! The Rust SDK of Event Hubs, as a program of one of three kinds: tour, send, process. What it learns it writes as JSON,
//! one object a line; `send` and `process` go on until their standard input ends.
//!
//! The SDK takes no port from a connection string, and no word for a connection without TLS. Both come by its custom
//! endpoint, the second word.

use azure_core::time::Duration;
use azure_messaging_eventhubs::error::ErrorKind;
use azure_messaging_eventhubs::models::StartPositions;
use azure_messaging_eventhubs::processor::PartitionClient;
use azure_messaging_eventhubs::{
    ConsumerClient, EventDataBatchOptions, EventHubsError, EventProcessor, InMemoryCheckpointStore, OpenReceiverOptions,
    ProducerClient, StartLocation, StartPosition,
};
use futures::StreamExt;
use serde_json::{json, Value};
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Between two batches: what is tested is failures, and a full speed would only hide them behind load.
const PACE: std::time::Duration = std::time::Duration::from_millis(20);

fn say(what: Value) {
    println!("{what}");
}

async fn until_input_ends() {
    let mut rest = Vec::new();
    tokio::io::stdin().read_to_end(&mut rest).await.expect("standard input can be read");
}

async fn producer(words: &[String]) -> Result<ProducerClient, EventHubsError> {
    let builder = ProducerClient::builder().with_custom_endpoint(words[1].clone());
    builder.open_with_connection_string(&words[0], None).await
}

async fn consumer(words: &[String], group: &str) -> Result<ConsumerClient, EventHubsError> {
    let builder = ConsumerClient::builder().with_custom_endpoint(words[1].clone()).with_consumer_group(group.into());
    builder.open_with_connection_string(&words[0], None).await
}

async fn send_batch(client: &ProducerClient, partition: &str, bodies: &[String]) -> Result<(), EventHubsError> {
    let options = EventDataBatchOptions { partition_id: Some(partition.into()), ..Default::default() };
    let batch = client.create_batch(Some(options)).await?;
    for body in bodies {
        assert!(batch.try_add_event_data(body.clone(), None)?);
    }
    client.send_batch(batch, None).await
}

async fn tour(words: &[String]) -> Result<(), Failure> {
    let client = producer(words).await?;
    let hub = client.get_eventhub_properties().await?;
    say(json!({"hub": hub.name, "partitions": hub.partition_ids}));
    send_batch(&client, "0", &["first".into(), "second".into()]).await?;
    let options = EventDataBatchOptions { partition_key: Some("order-42".into()), ..Default::default() };
    let keyed = client.create_batch(Some(options)).await?;
    keyed.try_add_event_data("keyed", None)?;
    client.send_batch(keyed, None).await?;
    let about = client.get_partition_properties("0").await?;
    say(json!({"partition": [about.beginning_sequence_number, about.last_enqueued_sequence_number, about.is_empty]}));
    client.close().await?;

    let client = consumer(words, "$Default").await?;
    let owner = |level, location| OpenReceiverOptions {
        owner_level: Some(level),
        start_position: Some(StartPosition { location, inclusive: false }),
        ..Default::default()
    };
    let first = client.open_receiver_on_partition("0".into(), Some(owner(1, StartLocation::Earliest))).await?;
    let mut events = first.stream_events();
    for _ in 0..2 {
        let event = events.next().await.expect("the stream goes on")?;
        let body = String::from_utf8_lossy(event.event_data().body().unwrap_or_default()).into_owned();
        say(json!({"read": body, "sequence": event.sequence_number(), "offset": event.offset()}));
    }
    let other = consumer(words, "$Default").await?;
    let second = other.open_receiver_on_partition("0".into(), Some(owner(2, StartLocation::Offset("0".into())))).await?;
    {
        let mut behind = second.stream_events();
        let event = behind.next().await.expect("the stream goes on")?;
        say(json!({"behind": String::from_utf8_lossy(event.event_data().body().unwrap_or_default())}));
    }
    let ousted = matches!(events.next().await, Some(Err(error)) if matches!(error.kind, ErrorKind::ConsumerDisconnected(_)));
    say(json!({"ousted": ousted}));
    Ok(())
}

async fn send(words: &[String]) -> Result<(), Failure> {
    let over = tokio::spawn(until_input_ends());
    let client = producer(words).await?;
    let partitions = client.get_eventhub_properties().await?.partition_ids;
    let mut number = 0;
    while !over.is_finished() {
        let partition = &partitions[number % partitions.len()];
        let body = format!("{partition} {number}");
        send_batch(&client, partition, &[body.clone()]).await?;
        say(json!({"acknowledged": [body]}));
        number += 1;
        tokio::time::sleep(PACE).await;
    }
    Ok(client.close().await?)
}

async fn process(words: &[String]) -> Result<(), Failure> {
    let earliest = StartPosition { location: StartLocation::Earliest, inclusive: false };
    let processor = EventProcessor::builder()
        .with_update_interval(Duration::seconds(1))
        .with_partition_expiration_duration(Duration::seconds(10))
        .with_start_positions(StartPositions { default: earliest, ..Default::default() })
        .build(consumer(words, &words[3]).await?, Arc::new(InMemoryCheckpointStore::new()))
        .await?;
    let running = processor.clone();
    let mut run = tokio::spawn(async move { running.run().await });
    let (over, ended) = watch::channel(false);
    let mut input = tokio::spawn(until_input_ends());
    loop {
        tokio::select! {
            _ = &mut input => break,
            outcome = &mut run => return Err(format!("the processor ended: {outcome:?}").into()),
            partition = processor.next_partition_client() => {
                tokio::task::spawn_local(read(partition?, ended.clone()));
            }
        }
    }
    over.send(true)?;
    processor.shutdown().await?;
    Ok(run.await??)
}

async fn read(partition: Arc<PartitionClient>, mut ended: watch::Receiver<bool>) {
    let id = partition.get_partition_id();
    say(json!({"owns": id}));
    let mut events = partition.stream_events();
    loop {
        let next = tokio::select! {
            _ = ended.changed() => return,
            next = events.next() => next,
        };
        let outcome = match next {
            None => return say(json!({"lost": id})),
            Some(Err(error)) if matches!(error.kind, ErrorKind::ConsumerDisconnected(_)) => {
                return say(json!({"lost": id}));
            }
            Some(Err(error)) => Err(error),
            Some(Ok(event)) => {
                let body = String::from_utf8_lossy(event.event_data().body().unwrap_or_default()).into_owned();
                say(json!({"event": body, "at": id, "sequence": event.sequence_number()}));
                partition.update_checkpoint(&event).await
            }
        };
        if let Err(error) = outcome {
            return say(json!({"failed": format!("{error:?}"), "at": id}));
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    // Streams of events belong to one thread.
    tokio::task::LocalSet::new().run_until(run()).await;
}

async fn run() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words[0].as_str() {
        "tour" => tour(&words[1..]).await,
        "send" => send(&words[1..]).await,
        _ => process(&words[1..]).await,
    };
    if let Err(error) = outcome {
        say(json!({"failed": format!("{error:?}")}));
        std::process::exit(1);
    }
}
