"""Elections: when a member campaigns, how leadership is handed on, and how a wiped member's vote comes back.

Read `election` first. What happens to a message once there is a leader is `replication`.
"""
