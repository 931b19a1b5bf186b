"""Did the cluster keep its promises? Questions to a history, each with a name, each answered apart from the others.

Problem: "the test passed" hides which promise was looked at, and whether there was anything to see. Here every promise
is a checker of its own (C1, C2, ... after the properties they are about), and its answer is one of four words.
Rules never broken:
 - PASSED is said only of something that was there: no rows to judge is NODATA, and so is the whole run when no fault
   struck;
 - a checker that breaks has said nothing: UNKNOWN, never PASSED;
 - a violation names the calls, values and places that prove it;
 - one damage is one checker's: what nobody ever read is C1's and not also a hole in somebody's reading (C9). So a red
   line says what is wrong, not that something is.
Rejected: one grand check of "the log equals the model". It finds as much, and says nothing of what it found.
"""
