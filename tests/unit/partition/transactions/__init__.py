"""What a partition does with transactions, alone and on a real store."""
