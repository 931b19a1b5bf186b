"""`make bench`: what is compared (`rows`), one measurement (`cell`), all of them (`run`), and the table (`report`)."""
