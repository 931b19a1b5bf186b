"""The history of a run: rows that never change, in tables that any tool can read.

A verdict is only as good as its history. A history that the system under test writes proves nothing. And if "no answer"
is recorded as "did not happen", checkers report false violations and miss true ones.

Rules:
 - every call has one row when it ends, with begin and end by one monotonic clock; a call that was under way when the
   run ended has a row without an end;
 - a call is `fail` only if the server's answer proves that nothing was done; after a timeout, a broken connection or an
   unexpected error it is `info`: it may have happened, now or later;
 - one call at a time sends a value, and each value is unique: its name gives its writer and its number (`values`);
 - a checker reads only tables, so any run can be judged again, elsewhere, and by other checkers.

Rejected: a text log of everything that clients did. Each question to it would need a program of its own.
"""
