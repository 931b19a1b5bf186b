"""Schedules in which nodes run two releases, of which the later one has features that exist only here."""
