"""The dialect of Event Hubs: its SDKs, unmodified, with a connection string. Read `hub_plan` first, then `hub_links`.

An event is stored once, in the form of the Event Stream Extensions, and translated where a link of this dialect brings
or takes it. Nothing here is on the way of any other link.
"""
