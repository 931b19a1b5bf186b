"""Synchronous clients, made from the asyncio classes; of those whose names end in Base, `clients` has the rest.

Type checkers and editors read `twins.pyi` instead."""

import holdfast.client as aio
from holdfast.client.sync.blocking_proxy import Block, SyncClient, Twin, twin_class

DeliveryBase = twin_class("DeliveryBase", Twin, aio.Delivery)
TransactionBase = twin_class("TransactionBase", Block, aio.Transaction)
GroupMember = twin_class("GroupMember", Block, aio.GroupMember)
ProducerClient = twin_class("ProducerClient", SyncClient, aio.ProducerClient)
TransactionGroupBase = twin_class("TransactionGroupBase", SyncClient, aio.TransactionGroup)
ConsumerClientBase = twin_class("ConsumerClientBase", SyncClient, aio.ConsumerClient)
RangeClient = twin_class("RangeClient", SyncClient, aio.RangeClient)
AdminClient = twin_class("AdminClient", SyncClient, aio.AdminClient)
