"""Checkers: each judges from a history whether the cluster kept one promise.

"The test passed" does not tell which promise was tested, or whether there was anything to judge. So each promise has a
checker of its own (C1, C2, ...), and its verdict is one of four words.

Rules:
 - a checker without rows to judge says NODATA, not PASSED; so does a whole run in which no fault struck;
 - a checker that raises says UNKNOWN, never PASSED;
 - a violation names the calls, values and places that prove it;
 - one damage belongs to one checker: an event that no reader ever got is C1's, and not also a hole in a session (C9).
   So a failed checker tells the kind of damage.

Rejected: one check that "the log equals the model". It would find as much, and would not tell what is wrong.
"""
