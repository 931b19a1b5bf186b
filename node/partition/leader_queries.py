"""Questions to the leader of a partition other than appends and reads, and their answers.

The rule: plain data that crosses a network unchanged, each kind with a tag of its own, so that one message between
nodes carries them all (`node/peer_codec.py`).
"""

from __future__ import annotations

from node.partition.consumer_groups.group_queries import GroupAnswer, GroupQuestion
from node.partition.entries.entry_queries import AskFate, DumpEntries, EntryList, Fate
from node.partition.transactions.transaction_commands import Begin, Prepare, StageOffset
from node.partition.transactions.transaction_queries import ListTransactions, OpenTransactions, WriteMarker
from node.partition.transactions.transaction_state import TransactionDone, TransactionRefused

TransactionQuestion = Begin | StageOffset | Prepare | WriteMarker | ListTransactions
TransactionAnswer = TransactionDone | TransactionRefused | OpenTransactions

Question = GroupQuestion | AskFate | DumpEntries | TransactionQuestion
Answer = GroupAnswer | Fate | EntryList | TransactionAnswer
