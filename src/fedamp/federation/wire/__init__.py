"""What travels between server and silos: rows as bytes and back, and what a reply must look like."""
