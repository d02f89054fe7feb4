"""Starting, watching and ending the workers."""
