"""Transport, from a log's name to an open link: servers, connections, redirects, and a log's `$info`.

Read `network` first. Messages on a link are the business of `produce` and `consume`.
"""
