"""The checkpoint store for processors of Event Hubs: a small part of Blob Storage's protocol, onto consumer groups.

Every processor of the SDKs keeps its ownerships and checkpoints in a blob container. Here an ownership is a row of the
consumer group in the partition's replicated state, and a checkpoint is the group's position. `blob_names` reads what a
blob stands for, `group_blobs` asks the partitions, `shared_key` checks signatures, `blob_server` speaks HTTP.
"""
