//! A processor on the Rust SDK of Event Hubs with the SDK's own Blob store, which is published for version 0.15. What it
//! learns it writes as JSON, one object a line; it goes on until its standard input ends.
//!
//! Words: the hub, its address as amqp://host:port, the URL of the container, the consumer group.

use async_trait::async_trait;
use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::http::Url;
use azure_core::time::{Duration, OffsetDateTime};
use azure_messaging_eventhubs::error::ErrorKind;
use azure_messaging_eventhubs::models::StartPositions;
use azure_messaging_eventhubs::processor::PartitionClient;
use azure_messaging_eventhubs::{ConsumerClient, EventProcessor, StartLocation, StartPosition};
use azure_messaging_eventhubs_checkpointstore_blob::BlobCheckpointStore;
use azure_storage_blob::BlobContainerClient;
use futures::StreamExt;
use serde_json::{json, Value};
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// This version of the SDK knows no connection strings. An open cluster takes any token.
#[derive(Debug)]
struct AnyToken;

#[async_trait]
impl TokenCredential for AnyToken {
    async fn get_token(&self, _: &[&str], _: Option<TokenRequestOptions<'_>>) -> azure_core::Result<AccessToken> {
        Ok(AccessToken::new("any", OffsetDateTime::now_utc() + Duration::hours(1)))
    }
}

fn say(what: Value) {
    println!("{what}");
}

async fn until_input_ends() {
    let mut rest = Vec::new();
    tokio::io::stdin().read_to_end(&mut rest).await.expect("standard input can be read");
}

async fn process(words: &[String]) -> Result<(), Failure> {
    let store = BlobCheckpointStore::new(BlobContainerClient::new(Url::parse(&words[2])?, None, None)?);
    let consumer = ConsumerClient::builder()
        .with_custom_endpoint(words[1].clone())
        .with_consumer_group(words[3].clone())
        .open("localhost", words[0].clone(), Arc::new(AnyToken))
        .await?;
    let earliest = StartPosition { location: StartLocation::Earliest, inclusive: false };
    let processor = EventProcessor::builder()
        .with_update_interval(Duration::seconds(1))
        .with_partition_expiration_duration(Duration::seconds(10))
        .with_start_positions(StartPositions { default: earliest, ..Default::default() })
        .build(consumer, store)
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
    if let Err(error) = process(&words).await {
        say(json!({"failed": format!("{error:?}")}));
        std::process::exit(1);
    }
}
