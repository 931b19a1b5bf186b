"""Synchronous clients, made from the asyncio classes; of those whose names end in Base, `clients` has the rest.

Type checkers and editors read `twins.pyi` instead."""

import holdfast.client as aio
from holdfast.client.sync.blocking_proxy import Block, SyncClient, Twin, twin_class

DeliveryBase = twin_class(__name__, "DeliveryBase", Twin, aio.Delivery)
TransactionBase = twin_class(__name__, "TransactionBase", Block, aio.Transaction)
GroupMember = twin_class(__name__, "GroupMember", Block, aio.GroupMember)
ProducerClient = twin_class(__name__, "ProducerClient", SyncClient, aio.ProducerClient)
TransactionGroupBase = twin_class(__name__, "TransactionGroupBase", SyncClient, aio.TransactionGroup)
ConsumerClientBase = twin_class(__name__, "ConsumerClientBase", SyncClient, aio.ConsumerClient)
RangeClient = twin_class(__name__, "RangeClient", SyncClient, aio.RangeClient)
AdminClient = twin_class(__name__, "AdminClient", SyncClient, aio.AdminClient)
