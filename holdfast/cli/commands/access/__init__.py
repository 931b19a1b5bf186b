"""Commands about access: users and grants, and the rules of Event Hubs' clients."""
