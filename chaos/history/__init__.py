"""What happened in a run: rows that nobody changes afterwards, in tables that any tool can read.

Problem: a verdict is worth as much as the story that it is read from. A story told by the system itself proves nothing,
and one in which "no answer" was written down as "did not happen" accuses the innocent and acquits the guilty.
Rules never broken:
 - every call has one row when it ended, with both moments by one monotonic clock; what was under way when the run was
   broken off has a row without an end;
 - `fail` is written only where the server's answer proves that nothing was done; a timeout, a broken connection, an
   error that nobody foresaw are `info`: it may have happened, now or later;
 - each value is sent by one call at a time and is unique for ever: its name says who made it and as which (`values`);
 - a checker reads tables and nothing else, so any run can be judged again, by other checkers, elsewhere.
Rejected: a log of everything that clients did, as text. Each question to it would be a program of its own.
"""
