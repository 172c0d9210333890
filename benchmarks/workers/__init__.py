"""What runs in the processes of peers."""
