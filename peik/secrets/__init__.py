"""What is secret in a store: sealed where it enters, opened where it leaves, and sealed again when keys change."""
