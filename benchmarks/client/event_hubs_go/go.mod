module holdfast/benchmarks/eventhubs

go 1.24.0

require github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2 v2.0.2

require (
	github.com/Azure/azure-sdk-for-go/sdk/azcore v1.20.0 // indirect
	github.com/Azure/azure-sdk-for-go/sdk/internal v1.11.2 // indirect
	github.com/Azure/go-amqp v1.5.0 // indirect
	golang.org/x/net v0.47.0 // indirect
	golang.org/x/text v0.31.0 // indirect
)
