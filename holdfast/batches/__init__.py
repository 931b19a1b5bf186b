"""Many messages in one piece: how a producer packs them for the way to a node (`packed_batch`), and how the records of
a batch get smaller, on that way as well as in a log (`codec`, and how each codec is read without trusting what it says
of itself: `gzip_stream`, `zstd_frame`).
"""
