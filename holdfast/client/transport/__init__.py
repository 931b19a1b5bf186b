"""From a log's name to an open link: servers, connections, redirects, and what a log's `$info` says.

Read `network` first. What travels over a link is the business of `produce` and `consume`.
"""
